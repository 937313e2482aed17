"""Finds processes by a marker in their environment and signals them, and never any other process.

Every process of a job has OUTRIDER_JOB_UID, and every process of a member OUTRIDER_POD_UID, in its initial environment;
children inherit it, whatever they do to their process group or session. The kernel reuses pids, so a process is first
opened (pidfd), then its marker is read, and the signal goes to the opened process. Without pidfds (a kernel before 5.3,
or a seccomp profile that forbids them) its start time is compared instead, which leaves a gap between the comparison
and the signal.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

PROC = Path("/proc")


def marked(variable: str, value: str) -> list[int]:
    """Sorted pids of the living processes that were started with `variable=value`, except the caller's own."""
    return sorted(pid for pid in _pids() if pid != os.getpid() and _carries(pid, variable, value))


def send_signal(pid: int, number: signal.Signals, variable: str, value: str) -> bool:
    """Signal the process if it has the marker; returns whether it was signalled."""
    if pid == os.getpid():
        return False
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:  # pidfds are not available here
        return _signal_by_pid(pid, number, variable, value)
    try:
        if not _carries(pid, variable, value):
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)


def _signal_by_pid(pid: int, number: signal.Signals, variable: str, value: str) -> bool:
    before = start_time(pid)
    if before is None or not _carries(pid, variable, value) or start_time(pid) != before:
        return False
    try:
        os.kill(pid, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def start_time(pid: int) -> int | None:
    """The start of a process in ticks since boot; None if no process has this pid, or only one that has ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def seen_from_here(pid: int, variable: str, value: str) -> int:
    """The pid here of the marked process that has this pid in its own pid namespace; 0 if there is none.

    A member reports the pids of its own namespace; outside of a pod or an isolated member they have no meaning.
    """
    return next((each for each in marked(variable, value) if _own_pid(each) == pid), 0)


def sweep(variable: str, value: str, *, spare: frozenset[int] = frozenset(), seconds: float = 5.0) -> list[int]:
    """Kill every marked process except the caller and `spare`, repeatedly until none is left or the time is over (a
    process in an uninterruptible call dies when it returns). Returns the sorted pids that were signalled."""
    deadline = time.monotonic() + seconds
    signalled: set[int] = set()
    while True:
        found = [pid for pid in marked(variable, value) if pid not in spare]
        hit = [pid for pid in found if send_signal(pid, signal.SIGKILL, variable, value)]
        signalled.update(hit)
        if not hit or time.monotonic() > deadline:
            return sorted(signalled)
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process with this pid is running; a process that has ended but was not reaped is not."""
    return start_time(pid) is not None


def ancestors() -> frozenset[int]:
    """Pids of the caller's parent, grandparent and so on, as far as they are visible in this pid namespace."""
    found, pid = set[int](), os.getppid()
    while pid > 0 and pid not in found:
        found.add(pid)
        pid = _parent(pid)
    return frozenset(found)


def _parent(pid: int) -> int:
    try:
        return int((PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir(PROC) if entry.name.isdigit()]


def _own_pid(pid: int) -> int:
    try:
        status = (PROC / str(pid) / "status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[-1]) for line in status.splitlines() if line.startswith("NSpid:")), pid)


def _carries(pid: int, variable: str, value: str) -> bool:
    """Whether a process has the marker. One that has ended but was not reaped has no environment, so it has not."""
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{variable}={value}".encode() in environment.split(b"\0")
