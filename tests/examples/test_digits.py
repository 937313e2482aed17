"""The digits example is an ordinary script: it runs alone and under torchrun, and resumes its own checkpoint."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import Warm, plain_environment

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]  # `make demo` trains with it too

SCRIPT = Path(__file__).parents[2] / "examples" / "digits" / "train.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def train(folder: Path, launcher: list[str], *arguments: str) -> str:
    command = [*launcher, str(SCRIPT), "--checkpoint", str(folder / "digits.pt"), "--out", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def result(folder: Path) -> dict[str, float]:
    document: dict[str, float] = json.loads((folder / "result.json").read_text())
    return document


def steps(folder: Path) -> list[int]:
    return [int(row[1]) for row in csv.reader((folder / "loss.csv").read_text().splitlines())]


def test_it_learns_under_plain_python(tmp_path: Path) -> None:
    train(tmp_path, [sys.executable], "--epochs", "8")
    assert result(tmp_path)["accuracy"] > 0.9


def test_it_trains_under_torchrun_and_resumes_with_fewer_processes(tmp_path: Path) -> None:
    train(tmp_path, TORCHRUN, "--epochs", "2", "--checkpoint-every", "10")
    made = steps(tmp_path)
    assert made == list(range(1, 91))
    output = train(tmp_path, [sys.executable], "--epochs", "3")
    assert "resumed at epoch 2 step 90 on 1 processes" in output
    assert steps(tmp_path) == list(range(1, 181))


def test_a_killed_run_goes_on_in_the_middle_of_the_epoch(tmp_path: Path, warm: Warm) -> None:
    """180 steps an epoch; the kill comes long before the second save, which it would tear."""
    shutil.copy(SCRIPT, tmp_path / "train.py")
    arguments = ["train.py", "--checkpoint", "digits.pt", "--out", ".", "--epochs", "1", "--batch-size", "8"]
    reading, writing = os.pipe()
    with os.fdopen(reading) as output:
        saving = [*arguments, "--checkpoint-every", "75", "--log-every", "1"]
        run = warm.start(tmp_path, saving, plain_environment(), writing)
        os.close(writing)
        assert any("step 76 " in line for line in output)
        run.kill()
        run.wait(240)
    done = warm.run(tmp_path, *arguments[1:])
    assert done.returncode == 0, done.stderr
    assert "resumed at epoch 0 step 75 on 1 processes" in done.stdout
    assert result(tmp_path)["steps"] == 180
    assert sorted(set(steps(tmp_path))) == list(range(1, 181))
