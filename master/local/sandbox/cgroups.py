"""The cgroups of a job's isolated members, of version 1 or 2. Each member has one for its trainer, as a container has.

They are `outrider-job-<uid>/<member>` in every hierarchy with one of `CONTROLLERS`: below the group of this process in
version 1; at the top in version 2, where a group with processes in it cannot have groups with limits below it. A group
does not end by itself, and so each job has one more, `keeper`, with the process that removes them all. A job whose
keeper's group is empty is dead, and the next job removes what it has left.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = {"cpu", "cpuacct", "memory"}
"""Of version 1; `cpuacct` limits nothing, and says what a member has used."""
PERIOD = 100_000
"""Microseconds over which a limit of cpu counts: the kernel's default, and the kubelet's."""
PREFIX, KEEPER = "outrider-job-", "keeper"


class LimitImpossible(OSError):
    """The machine's cgroups cannot hold a limit that was asked for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one member's trainer, with all that it starts."""

    cpus: float | None = None
    memory: int | None = None
    """Bytes."""

    def files(self) -> dict[str, dict[str, str]]:
        """What is written where, by limit; each version of cgroups has its own names."""
        found = {}
        if self.cpus is not None:
            quota = str(max(1000, round(self.cpus * PERIOD)))  # the kernel takes no less
            found["cpu"] = {"cpu.cfs_quota_us": quota, "cpu.max": f"{quota} {PERIOD}"}
        if self.memory is not None:
            size = str(self.memory)
            found["memory"] = {"memory.limit_in_bytes": size, "memory.max": size, "memory.swap.max": "0"}
        return found


class JobGroups:
    """Raises OSError where groups cannot be made here; `remove` never does."""

    def __init__(self, job_uid: str, limits: Limits) -> None:
        self._limits = limits
        bases = hierarchies(Path("/proc/self/mounts").read_text(), Path("/proc/self/cgroup").read_text())
        self.folders = tuple(base / f"{PREFIX}{job_uid}" for base in bases)
        for folder in self.folders:
            _remove_the_dead(folder.parent)
            _make(folder / KEEPER)

    def make(self, member: str) -> list[Path]:
        """The member's groups, with their limits."""
        made = [folder / member for folder in self.folders]
        for group in made:
            _make(group)
        for limit, files in self._limits.files().items():
            places = [(group / name, value) for group in made for name, value in files.items()]
            found = [(path, value) for path, value in places if path.exists()]
            if not found:
                raise LimitImpossible(
                    f"the cgroups of this machine have no {limit} controller that could limit a member"
                )
            for path, value in found:
                path.write_text(value)
        return made

    def remove(self, member: str) -> None:
        """As far as its processes have ended; the keeper does the rest."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                (folder / member).rmdir()


def hierarchies(mounts: str, own: str) -> list[Path]:
    """Where groups are made, from /proc/self/mounts and /proc/self/cgroup: version 1 where it has the controllers."""
    rows = [line.split() for line in mounts.splitlines()]
    paths = {
        kind: path for _, kinds, path in (line.split(":", 2) for line in own.splitlines()) for kind in kinds.split(",")
    }
    first: dict[Path, None] = {}
    for _, place, kind, options, *_rest in rows:
        for controller in sorted(CONTROLLERS & set(options.split(",")) if kind == "cgroup" else ()):
            below = Path(place + paths.get(controller, "/"))
            first[below if below.is_dir() else Path(place)] = None
    return list(first) or [Path(row[1]) for row in rows if row[2] == "cgroup2"][:1]


def _make(group: Path) -> None:
    """Groups of version 2 have controllers only as far as those above pass them on."""
    for folder in (group.parent, group):
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):  # none, or not to be had: it is told where a limit needs it
            if folder is group.parent and (folder / "cgroup.subtree_control").exists():
                (folder.parent / "cgroup.subtree_control").write_text("+cpu +memory")
                (folder / "cgroup.subtree_control").write_text("+cpu +memory")


def _remove_the_dead(base: Path) -> None:
    for folder in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # processes of it are still there
            keeper = folder / KEEPER / "cgroup.procs"
            if not keeper.exists() or not keeper.read_text():
                for group in (*(Path(entry) for entry in os.scandir(folder) if entry.is_dir()), folder):
                    group.rmdir()
