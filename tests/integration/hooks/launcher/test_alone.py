"""Without a sidecar a trainer's script runs as without Outrider, and one line reports it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from training_hooks import HOOKS_PATH

SCRIPT = """
import multiprocessing, os, signal, subprocess, sys

def child(queue):
    queue.put("from a child")

if __name__ == "__main__":
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    process = multiprocessing.get_context("spawn").Process(target=child, args=(queue,))
    process.start()
    print(queue.get(), process.join(), process.exitcode)
    ours = ("RANK", "TORCHELASTIC", "OUTRIDER_TEMPLATE")
    print(sys.argv, sorted(name for name in os.environ if name.startswith(ours)))
    print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGCHLD))
    print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), signal.set_wakeup_fd(-1))
    subprocess.run([sys.executable, "-c", "print('a tool')"], check=True)
    sys.exit(7)
"""


def ran(folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OUTRIDER", "PYTHONPATH"))}
    return subprocess.run(
        [sys.executable, "-u", "train.py", "--x", "a b"],
        cwd=folder,
        env=plain | more,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("volume", ["volume", "not/there"])
def test_without_a_sidecar_the_script_runs_as_without_outrider_and_one_line_reports_it(
    tmp_path: Path, volume: str
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "volume").mkdir()
    marked = {"OUTRIDER_DIR": str(tmp_path / volume), "OUTRIDER_HOOKS": HOOKS_PATH, "PYTHONPATH": HOOKS_PATH}
    expected, found = ran(tmp_path), ran(tmp_path, **marked, OUTRIDER_TEMPLATE="1", OUTRIDER_PATIENCE="0.3")
    assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout) == (7, expected.stdout)
    said = found.stderr.splitlines()
    assert [line for line in said if "sidecar" in line] == said
    assert len(said) == 1
