"""Watches announced trainer processes for their end, and kills the processes that an ended one left.

A pidfd reports the end of any process at once. If none is available (a kernel before 5.3, or a seccomp profile that
forbids them), the process is checked every second. Processes that a dead trainer leaves behind (DataLoader workers run
on for seconds) are found by the member's marker, the trainer's process group, and a later start than its own. So
neither its successor, which has its own group, nor the shell it ran in is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from outrider.runtime.processes import ancestors, is_alive, marked, send_signal, start_time, sweep
from outrider.wire.ids import PodUid

MARKER = "OUTRIDER_POD_UID"
SWEEP_SECONDS = 2.0
LOOK_SECONDS = 1.0


class Trainers:
    """`on_end` is called once with each ended pid."""

    def __init__(self, uid: PodUid, on_end: Callable[[int], None]) -> None:
        self._uid = uid
        self._on_end = on_end
        self._descriptors: dict[int, int] = {}
        self._looks: dict[int, asyncio.TimerHandle] = {}
        """Timers of the periodic checks, by pid, of processes without a pidfd."""
        self._identity: dict[int, tuple[int, int]] = {}
        """Process group and start time in ticks by pid, also of ended processes."""

    def watch(self, pid: int) -> None:
        if pid in self._descriptors or pid in self._looks:
            return
        descriptor = None
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._on_end(pid)
            return
        except OSError:  # pidfds are not available here
            self._look(pid, start_time(pid))
        identity = _identity(pid)
        if identity is not None:
            self._identity[pid] = identity
        if descriptor is not None:
            self._descriptors[pid] = descriptor
            asyncio.get_running_loop().add_reader(descriptor, self._ended, pid)

    def _look(self, pid: int, started: int | None) -> None:
        """Checks the process, which is another one if its start time differs."""
        self._looks.pop(pid, None)
        if started is None or start_time(pid) != started:
            self._on_end(pid)
        else:
            self._looks[pid] = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look, pid, started)

    def _ended(self, pid: int) -> None:
        self._forget(pid)
        self._on_end(pid)

    def _forget(self, pid: int) -> None:
        descriptor = self._descriptors.pop(pid)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)

    def close(self) -> None:
        for pid in list(self._descriptors):
            self._forget(pid)
        for look in self._looks.values():
            look.cancel()
        self._looks.clear()

    def sweep_all(self) -> list[int]:
        """Kills the member's processes except this one and its ancestors: the shell of its container is marked too."""
        return sweep(MARKER, self._uid, spare=ancestors(), seconds=SWEEP_SECONDS)

    def sweep_trainer(self, pid: int) -> list[int]:
        """Kills the trainer and the processes it started; returns the pids that were signalled."""
        identity = self._identity.get(pid)
        if identity is None:
            return []
        signalled: set[int] = set()
        deadline = time.monotonic() + SWEEP_SECONDS
        while time.monotonic() < deadline:
            left = [each for each in marked(MARKER, self._uid) if self._belongs(each, identity)]
            hit = [each for each in left if send_signal(each, signal.SIGKILL, MARKER, self._uid)]
            if not hit:
                break
            signalled.update(hit)
            time.sleep(0.005)
        return sorted(signalled)

    def _belongs(self, pid: int, trainer: tuple[int, int]) -> bool:
        own = _identity(pid)
        return own is not None and own[0] == trainer[0] and own[1] >= trainer[1] and is_alive(pid)


def _identity(pid: int) -> tuple[int, int] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[2]), int(fields[19])
