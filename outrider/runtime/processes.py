"""Finds processes by a marker in their environment and ends them, without ever hitting anybody else's.

Every process of a job carries OUTRIDER_JOB_UID, every one of a member OUTRIDER_POD_UID, in the environment it was
started with; children inherit it whatever they do to their process group or session. A pid is a number that the kernel
gives out again: so a process is opened (pidfd) first, its marker is read after that, and the signal goes to what was
opened. Where there are no pidfds (a kernel before 5.3, a seccomp profile that forbids them) the start time says the
same, but for the moment between the look and the signal.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

PROC = Path("/proc")


def marked(variable: str, value: str) -> list[int]:
    """Pids, sorted, of living processes that were started with `variable=value`; never the caller's own."""
    return sorted(pid for pid in _pids() if pid != os.getpid() and _carries(pid, variable, value))


def send_signal(pid: int, number: signal.Signals, variable: str, value: str) -> bool:
    """Signals the process if it carries the marker; says whether it did."""
    if pid == os.getpid():
        return False
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:  # whatever else it is: none can be had here
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
    """In ticks since boot; None where no process runs under this pid, or only one that was not reaped."""
    try:
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def seen_from_here(pid: int, variable: str, value: str) -> int:
    """Which process here is the marked one that has this pid in its own pid namespace; 0: none.

    A member tells pids as it sees them: in a pod, or isolated, they mean nothing outside.
    """
    return next((each for each in marked(variable, value) if _own_pid(each) == pid), 0)


def sweep(variable: str, value: str, *, spare: frozenset[int] = frozenset(), seconds: float = 5.0) -> list[int]:
    """Kills every marked process but the caller and `spare`, again until none is left or the time is over (a process
    in an uninterruptible call dies when it returns); the pids that were signalled, sorted."""
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
    """Whether a process runs under this pid: one that ended and was not reaped does not."""
    return start_time(pid) is not None


def ancestors() -> frozenset[int]:
    """Pids of the caller's parent, its parent, and so on, as far as this pid namespace shows them."""
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
    """A process that has ended but was not reaped has no environment, and so carries nothing."""
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{variable}={value}".encode() in environment.split(b"\0")
