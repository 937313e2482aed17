"""`make demo` shows what it promises: two faults survived, a model that has learnt, and a plot."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]  # CI runs `make demo` itself

DEMO = Path(__file__).parents[2] / "examples" / "digits" / "demo.py"


def test_the_demo_survives_a_killed_process_and_a_killed_member(tmp_path: Path) -> None:
    """The jobs' folder is a short one: a socket path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="od-") as home:
        done = subprocess.run(
            [sys.executable, "-P", str(DEMO), "--job", "demo-test", "--epochs", "30", "--out", str(tmp_path / "out")],
            env={**os.environ, "OUTRIDER_HOME": home},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,  # each wait of the demo has a limit of its own
        )
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        "kill-process",
        "kill-member",
        "Rank 1 on worker-1 was killed by SIGKILL",
        "worker-3 is lost",
        "lost in total:",
    ):
        assert words in done.stdout
    assert (tmp_path / "out" / "plot.png").read_bytes().startswith(b"\x89PNG")
