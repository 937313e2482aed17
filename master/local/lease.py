"""Who is the master: locally whoever holds a file lock, and its term is a counter beside it.

The term grows with every master that takes the lease, so that the orders of one that was paused and comes back are
lower than those given since, and are refused. The kernel gives the lock back however its holder ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class LeaseHeld(Exception):
    """Another master has the lease; the message names the file."""


class Lease:
    """Taken when it is made; held until `release` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / "lease", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise LeaseHeld(f"another master of this job is alive: it holds {folder / 'lease'}") from error
        self.term = _next_term(folder / "term")

    def release(self) -> None:
        os.close(self._descriptor)


def _next_term(path: Path) -> int:
    """Counts on in the file, which is replaced as a whole; what cannot be read counts as 0."""
    try:
        last = int(path.read_text())
    except (OSError, ValueError):
        last = 0
    beside = path.with_name("term.new")
    beside.write_text(f"{last + 1}\n")
    beside.replace(path)
    return last + 1
