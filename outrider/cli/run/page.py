"""The dashboard of `outrider run --dashboard`: a process of its own, which ends with this one.

It has a process group of its own, so that Ctrl-C does not reach it, in the same session (`master.local.orphans`).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO

ENDS = 5.0
"""Seconds that it has to end."""
LONGEST = 500
"""The most bytes of a line that are kept."""


@contextlib.contextmanager
def shown(job: str, say: Callable[[str], None]) -> Iterator[None]:
    """Runs a job's dashboard; `say` gets its address, why there is none, or that it has ended before the job."""
    command = [sys.executable, "-P", "-E", "-m", "outrider", "dashboard", job, "--lifeline"]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, process_group=0)
    assert child.stdin is not None
    assert child.stdout is not None
    is_ending = threading.Event()
    reading = threading.Thread(target=_read, args=(child, child.stdout, is_ending, say, job), daemon=True)
    reading.start()
    try:
        yield
    finally:
        is_ending.set()
        child.stdin.close()
        try:
            child.wait(ENDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        reading.join()
        child.stdout.close()


def _read(child: subprocess.Popen[bytes], output: IO[bytes], is_ending: threading.Event, say: Callable[[str], None],
          job: str) -> None:  # fmt: skip
    """Reads to the end: a full pipe would stop it."""
    address = last = ""
    while line := output.readline(LONGEST):
        text = line.decode(errors="replace").strip()
        if not address and "http://" in text:
            address = text
            say(address)
        last = text or last
    code = child.wait()
    if not is_ending.is_set():
        why = f"exit code {code}" + (f": {last}" if last and last != address else "")
        say(f"the dashboard has ended with {why}. The job continues; `outrider dashboard {job}` shows it again")
