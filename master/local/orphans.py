"""Kills and reaps orphans of dead trainers, of which this process is the subreaper.

A live trainer is the subreaper of the processes it starts, so an orphan that arrives here has no trainer any more. It
is killed even without the mark in its environment (a process that overwrites its title destroys the mark). Processes in
this process's own session are left alone; hence no other code in this process may start processes in new sessions. An
armed fault (`training_hooks/chaos/main.py`) is orphaned on purpose, and ends by itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Set
from pathlib import Path

FAULT = b"OUTRIDER_FAULT="


def end_orphans(own: Set[int]) -> bool:
    """Kills and reaps orphans; whether there were any. `own`: the children that this process started itself, whose ends
    are read from pidfds."""
    orphans = set(_children_in_other_sessions()) - own
    for pid in [pid for pid in orphans if not _is_fault(pid)]:
        try:
            os.kill(pid, signal.SIGKILL)  # our child until we wait for it, so the pid cannot be reused
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
    """Whether the process is a running fault; an ended one has no environment, and is reaped like any other."""
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
