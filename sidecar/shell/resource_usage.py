"""Samples CPU, memory and GPUs of the trainer's processes from /proc.

Once a second it walks down from the trainer by the kernel's lists of children, which costs 30 µs a process; a scan of
all of /proc costs 3 ms on a busy node. A process that the sidecar may not read is not counted.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from outrider.sidecar.core.events import UsageSampled

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
GPU = re.compile(r"/dev/nvidia\d+")
GPUS_EVERY = 10.0
MOST_PROCESSES = 4096


class UsageSampler:
    """Measures CPU use since the last sample, and present memory and GPUs."""

    def __init__(self) -> None:
        self._ticks: dict[int, int] = {}
        self._at = time.monotonic()
        self._gpus = 0
        self._gpus_at = 0.0

    def sample(self, roots: Iterable[int]) -> UsageSampled:
        now = time.monotonic()
        pids = _tree(roots)
        ticks, resident = self._read(pids)
        spent = sum(count - self._ticks.get(pid, 0) for pid, count in ticks.items() if pid in self._ticks)
        cpu = spent / TICK / max(now - self._at, 1e-3)
        self._ticks, self._at = ticks, now
        if now - self._gpus_at >= GPUS_EVERY:
            self._gpus, self._gpus_at = _gpus(pids), now
        return UsageSampled(round(cpu, 3), round(resident * PAGE / 2**20, 1), self._gpus)

    def _read(self, pids: Iterable[int]) -> tuple[dict[int, int], int]:
        ticks, resident = {}, 0
        for pid in pids:
            try:
                fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            ticks[pid] = int(fields[11]) + int(fields[12])
            resident += int(fields[21])
        return ticks, resident


def _tree(roots: Iterable[int]) -> set[int]:
    """The processes and their descendants, as far as their main threads forked them."""
    found: set[int] = set()
    waiting = list(roots)
    while waiting and len(found) < MOST_PROCESSES:
        pid = waiting.pop()
        if pid in found:
            continue
        found.add(pid)
        try:
            children = (PROC / str(pid) / "task" / str(pid) / "children").read_bytes()
        except OSError:
            continue
        waiting += [int(child) for child in children.split()]
    return found


def _gpus(pids: Iterable[int]) -> int:
    """Number of GPUs that the processes have open."""
    held: set[str] = set()
    for pid in pids:
        folder = PROC / str(pid) / "fd"
        try:
            names = [os.readlink(folder / name) for name in os.listdir(folder)]
        except OSError:
            continue  # it ended, or belongs to a user whose descriptors we may not list
        held.update(name for name in names if GPU.fullmatch(name))
    return len(held)
