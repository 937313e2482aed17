"""The local master's lease is a file lock, and its term a counter in a file beside it.

The term grows with every master that takes the lease. So the orders of a master that was paused and returns have a
lower term than those given since, and are refused. The kernel releases the lock however its holder ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class LeaseHeld(Exception):
    """Another master holds the lease; the message names the file."""


class Lease:
    """The lease, taken by the constructor and held until `release` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / "lease", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise LeaseHeld(f"another master of this job is running: it holds {folder / 'lease'}") from error
        self.term = _next_term(folder / "term")

    def release(self) -> None:
        os.close(self._descriptor)


def _next_term(path: Path) -> int:
    """Increments the counter in the file, which is replaced as a whole; an unreadable one counts as 0."""
    try:
        last = int(path.read_text())
    except (OSError, ValueError):
        last = 0
    beside = path.with_name("term.new")
    beside.write_text(f"{last + 1}\n")
    beside.replace(path)
    return last + 1
