"""Ends and reaps what dead trainers have left to this process, their subreaper.

A living trainer is the subreaper of what it starts, so an orphan that comes here has none any more: it is ended,
whatever it did to the mark in its environment (a process that writes its title over it carries none). What is in this
process's own session is left alone; so nobody else in it may start processes in sessions of their own. A fault that was
armed for a member (`training_hooks/chaos/main.py`) is nobody's child on purpose, and ends by itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Set
from pathlib import Path

FAULT = b"OUTRIDER_FAULT="


def end_orphans(own: Set[int]) -> bool:
    """Whether there were any. `own`: the children that this process has started itself, which are waited for by their
    own pidfds."""
    orphans = set(_children_in_other_sessions()) - own
    for pid in [pid for pid in orphans if not _is_fault(pid)]:
        try:
            os.kill(pid, signal.SIGKILL)  # our child until we wait for it: the pid is nobody else's
            os.waitpid(pid, os.WNOHANG)
        except (ChildProcessError, ProcessLookupError):
            continue
    return bool(orphans)


def _children_in_other_sessions() -> list[int]:
    found = []
    for task in os.scandir(f"/proc/{os.getpid()}/task"):
        try:
            pids = Path(task.path, "children").read_text().split()
        except OSError:
            continue
        found += [int(pid) for pid in pids if _has_other_session(int(pid))]
    return found


def _is_fault(pid: int) -> bool:
    """A living one: what has ended has no environment, and is reaped as any other."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(entry.startswith(FAULT) for entry in environment.split(b"\0"))


def _has_other_session(pid: int) -> bool:
    try:
        return os.getsid(pid) != os.getsid(0)
    except OSError:
        return False
