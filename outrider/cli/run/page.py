"""The dashboard of `outrider run --dashboard`: a process of its own, which ends with this one.

It has a process group of its own, so that Ctrl-C does not reach it, in the same session (`master.local.orphans`).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator

ENDS = 5.0
"""Seconds that it has to end."""


@contextlib.contextmanager
def shown(job: str, say: Callable[[str], None]) -> Iterator[None]:
    """Runs the dashboard of a job, and prints its address or why there is none."""
    command = [sys.executable, "-m", "outrider", "dashboard", job, "--lifeline"]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, process_group=0)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        say(child.stdout.readline().decode(errors="replace").strip() or "the dashboard did not start")
        yield
    finally:
        child.stdin.close()
        try:
            child.wait(ENDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()
