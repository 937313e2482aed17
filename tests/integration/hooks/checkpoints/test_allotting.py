"""The checkpoint memory is reserved before a rank starts, or the start fails with the reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import training_hooks
from tests.integration.hooks.agent import Trainer
from training_hooks.checkpoints import reservation

SCRIPT = "import os\nprint('begins', os.stat(os.environ['OUTRIDER_DIR'] + '/checkpoints').st_size)\n"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    made: list[Trainer] = []

    def trainer(*command: str, **options: Any) -> Trainer:
        (tmp_path / "train.py").write_text(SCRIPT)
        made.append(Trainer(tmp_path, *command, **options))
        made[-1].announced()
        return made[-1]

    yield trainer
    for each in made:
        each.close()


def refused(trainer: Trainer) -> str:
    trainer.agent.say(do="start", generation=[1, 1], ranks=[{"local_rank": 0, "env": {"RANK": "0"}}], env={})
    return str(trainer.agent.expect("not_started")["error"])


def test_a_rank_finds_its_memory(make: Callable[..., Trainer]) -> None:
    trainer = make("train.py", OUTRIDER_CHECKPOINT_MEMORY=str(1 << 20))
    trainer.start()
    assert trainer.agent.expect("exited")["code"] == 0
    assert f"begins {1 << 20}" in trainer.read()


def test_under_a_launcher_too(make: Callable[..., Trainer]) -> None:
    launcher = str(Path(training_hooks.PACKAGE) / "outrider-launch")
    command = ("-c", 'exec "$@"', "sh", launcher, "sh", "-c", "ls -l $OUTRIDER_DIR/checkpoints")
    trainer = make(*command, python="/bin/sh", mark=False, OUTRIDER_CHECKPOINT_MEMORY=str(1 << 20))
    trainer.start()
    assert trainer.agent.expect("exited")["code"] == 0
    assert str(1 << 20) in trainer.read()


def test_a_volume_that_is_too_small_is_named_at_the_start(make: Callable[..., Trainer]) -> None:
    trainer = make("train.py", OUTRIDER_CHECKPOINT_MEMORY=str(1 << 50))
    error = refused(trainer)
    assert "the checkpoint memory (checkpointMemory, 1048576.0 GiB) cannot be reserved" in error
    assert "begins" not in trainer.read()
    assert list(trainer.volume.glob("checkpoints*")) == []


@pytest.mark.xdist_group("cgroup")
def test_a_container_that_has_too_little_memory_is_named_at_the_start(
    cgroup: Path, make: Callable[..., Trainer]
) -> None:
    enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    command = ("-c", enter, str(cgroup), sys.executable, "train.py")
    trainer = make(*command, python="/bin/sh", OUTRIDER_CHECKPOINT_MEMORY=str(256 << 20))
    error = refused(trainer)
    assert "(checkpointMemory, 256 MiB) cannot be reserved: " in error
    assert "of the container's 192 MiB are free" in error


def test_an_invalid_size_is_refused_with_the_variables_name(make: Callable[..., Trainer]) -> None:
    assert refused(make("train.py", OUTRIDER_CHECKPOINT_MEMORY="2Gi")) == (
        "OUTRIDER_CHECKPOINT_MEMORY: Invalid value: '2Gi': must be 16384 or more bytes"
    )


def test_without_the_variable_no_memory_is_reserved(tmp_path: Path) -> None:
    assert reservation.shortage(str(tmp_path), {}) == ""
    assert os.listdir(tmp_path) == []
