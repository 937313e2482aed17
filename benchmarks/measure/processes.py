"""Processes of a job as the kernel shows them: who descends from whom, when each ended, and how to hurt them."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


def parent_of(pid: int) -> int | None:
    """The parent's pid, None where the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def descendants(root: int) -> list[int]:
    """`root` and everything below it, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := parent_of(int(entry.name))) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        pid = queue.pop(0)
        found.append(pid)
        queue.extend(sorted(children.get(pid, [])))
    return found


def with_environment(name: str, value: str) -> list[int]:
    """The processes of this user whose environment at their start had `name` set to `value`."""
    wanted = f"{name}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return sorted(found)


def environment_of(pid: int) -> dict[str, str]:
    """A process' environment at its start."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def send_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def memory_mib(pid: int) -> float:
    """Resident memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds(pid: int) -> float:
    """User and system time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load() -> float:
    """How many processes ran or wanted to, averaged over the last minute."""
    return os.getloadavg()[0]


@dataclass(slots=True)
class Watch:
    """Notices when processes end, to the millisecond at which `look` is called; a zombie has ended."""

    ended: dict[int, float] = field(default_factory=dict)
    _pids: dict[int, int] = field(default_factory=dict)
    _poll: select.poll = field(default_factory=select.poll)

    def add(self, pids: Iterable[int]) -> None:
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                self.ended.setdefault(pid, time.time())
                continue
            self._pids[descriptor] = pid
            self._poll.register(descriptor, select.POLLIN)

    def look(self, seconds: float) -> None:
        """Wait up to `seconds` for the next end, and note the moment."""
        if not self._pids:
            time.sleep(seconds)
            return
        for descriptor, _ in self._poll.poll(seconds * 1000):
            self.ended[self._pids.pop(descriptor)] = time.time()
            self._poll.unregister(descriptor)
            os.close(descriptor)

    def alive_at(self, moment: float) -> list[int]:
        """Which of the watched were alive at that moment."""
        late = [pid for pid, when in self.ended.items() if when > moment]
        return sorted([*late, *self._pids.values()])

    def close(self) -> None:
        for descriptor in self._pids:
            os.close(descriptor)
        self._pids.clear()
