"""A cgroup (version 1) and a core for each member of a local job, so that what is done to one is done to it alone.

Each member's processes join its group by themselves (`join`). On a machine that does other work they go before it: what
counts between groups is their weight, while `nice` counts only within a session, where the kernel groups by sessions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure.processes import cpu_seconds

ROOT = Path("/sys/fs/cgroup/cpu")
MOST_SHARES = 262144
PERIOD = 100_000
"""Microseconds; what Kubernetes sets for a CPU limit."""
LEAVING = 10.0


class Groups:
    """The groups of worker-0 … worker-(n-1), each beside its core."""

    def __init__(self, members: int) -> None:
        self.folder = ROOT / f"outrider-bench-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / "cpu.shares").write_text(str(MOST_SHARES))
        for member in range(members):
            self.of(member).mkdir()

    def of(self, member: int) -> Path:
        return self.folder / f"worker-{member}"

    def limit(self, member: int, cores: float) -> None:
        """It may use so much of a core from now on."""
        (self.of(member) / "cpu.cfs_period_us").write_text(str(PERIOD))
        (self.of(member) / "cpu.cfs_quota_us").write_text(str(int(cores * PERIOD)))

    def used(self, member: int) -> float:
        """Processor seconds of those that are in it."""
        return sum(cpu_seconds(int(pid)) for pid in (self.of(member) / "cgroup.procs").read_text().split())

    def close(self) -> None:
        until = time.monotonic() + LEAVING
        for group in [*self.folder.iterdir(), self.folder]:
            while group.is_dir():
                try:
                    group.rmdir()
                except OSError:  # its processes are still leaving
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.05)


@contextmanager
def first() -> Iterator[Path]:
    """A group for this process and all that it starts, which goes before what else the machine does."""
    made = Groups(0)
    (made.folder / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield made.folder
    finally:
        (ROOT / "cgroup.procs").write_text(str(os.getpid()))
        made.close()


@contextmanager
def groups(members: int) -> Iterator[Groups]:
    made = Groups(members)
    try:
        yield made
    finally:
        made.close()


def join(folder: Path, member: str) -> None:
    """This process joins a member's group, and keeps to its core."""
    (folder / member / "cgroup.procs").write_text(str(os.getpid()))
    os.sched_setaffinity(0, {int(member.rpartition("-")[2]) % (os.cpu_count() or 1)})
