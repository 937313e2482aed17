"""The dashboard of `outrider run --dashboard`: a process of its own, which ends with this one.

It has a process group of its own, so that Ctrl-C does not reach it, in the same session (`master.local.orphans`).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
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
    reading = threading.Thread(target=child.stdout.read, daemon=True)  # a full pipe would stop it
    try:
        address = child.stdout.readline().decode(errors="replace").strip()
        reading.start()
        say(address or "the dashboard did not start")
        yield
    finally:
        child.stdin.close()
        try:
            child.wait(ENDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        reading.join()
        child.stdout.close()
