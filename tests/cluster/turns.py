"""Tests run beside each other, each in a namespace of its own; one that is marked `alone` has the cluster to itself.

They may run in several processes, which know nothing of each other: a lock of the machine's is held, shared by those
that bear each other. The processes of a run install Outrider once.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from tests.cluster.cluster import FOLDERS


@contextmanager
def turn(is_alone: bool) -> Iterator[None]:
    with locked("turn", fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH):
        yield


@contextmanager
def locked(name: str, how: int = fcntl.LOCK_EX) -> Iterator[TextIO]:
    """The file that is the lock, and what was left in it."""
    FOLDERS.mkdir(parents=True, exist_ok=True)
    with (FOLDERS / f"{name}.lock").open("a+") as file:
        fcntl.flock(file, how)
        file.seek(0)
        yield file


@contextmanager
def once(run: str) -> Iterator[bool]:
    """Whether what is done here was not done yet in this run; whoever asks meanwhile waits until it is."""
    with locked("installed") as file:
        was_done = file.read() == run
        yield not was_done
        file.truncate(0)
        file.write(run)
