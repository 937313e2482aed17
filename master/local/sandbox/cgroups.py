"""The cgroups (version 1 or 2) of a job's isolated members: one for each member's trainer, as a container has.

They are `outrider-job-<uid>/<member>` in every hierarchy with one of `CONTROLLERS`: in version 1 below the group of
this process, in version 2 at the top, because there a group with processes cannot have groups with limits below it. A
group does not end by itself, so each job has one more, `keeper`, with the process that removes them all. A job whose
keeper's group is empty is dead, and the next job removes its groups.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = {"cpu", "cpuacct", "memory"}
"""Controllers of version 1; `cpuacct` limits nothing but measures a member's use."""
PERIOD = 100_000
"""Period of CPU limits in microseconds: the default of the kernel and the kubelet."""
PREFIX, KEEPER = "outrider-job-", "keeper"


class LimitImpossible(OSError):
    """The machine's cgroups do not support a requested limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one member's trainer with all its processes."""

    cpus: float | None = None
    memory: int | None = None
    """Memory limit in bytes."""

    def files(self) -> dict[str, dict[str, str]]:
        """The files to write and their contents, by limit; each version of cgroups has its own file names."""
        found = {}
        if self.cpus is not None:
            quota = str(max(1000, round(self.cpus * PERIOD)))  # the kernel's minimum is 1000
            found["cpu"] = {"cpu.cfs_quota_us": quota, "cpu.max": f"{quota} {PERIOD}"}
        if self.memory is not None:
            size = str(self.memory)
            found["memory"] = {"memory.limit_in_bytes": size, "memory.max": size, "memory.swap.max": "0"}
        return found


class JobGroups:
    """The groups of one job. The constructor and `make` raise OSError if groups cannot be created; `remove` never
    does."""

    def __init__(self, job_uid: str, limits: Limits) -> None:
        self._limits = limits
        bases = hierarchies(Path("/proc/self/mounts").read_text(), Path("/proc/self/cgroup").read_text())
        self.folders = tuple(base / f"{PREFIX}{job_uid}" for base in bases)
        for folder in self.folders:
            _remove_the_dead(folder.parent)
            _make(folder / KEEPER)

    def make(self, member: str) -> list[Path]:
        """Creates the member's groups with their limits."""
        made = [folder / member for folder in self.folders]
        for group in made:
            _make(group)
        for limit, files in self._limits.files().items():
            places = [(group / name, value) for group in made for name, value in files.items()]
            found = [(path, value) for path, value in places if path.exists()]
            if not found:
                raise LimitImpossible(
                    f"the {limit} of members cannot be limited: this machine's cgroups have no {limit} controller"
                )
            for path, value in found:
                path.write_text(value)
        return made

    def remove(self, member: str) -> None:
        """Removes the member's groups if its processes have ended; the keeper removes the rest."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                (folder / member).rmdir()


def hierarchies(mounts: str, own: str) -> list[Path]:
    """Folders for groups, from /proc/self/mounts and /proc/self/cgroup: of version 1 if it has the controllers."""
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
    """Creates a group, and enables its controllers (version 2) in the groups above it."""
    for folder in (group.parent, group):
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):  # no such controller: reported if a limit needs it
            if folder is group.parent and (folder / "cgroup.subtree_control").exists():
                (folder.parent / "cgroup.subtree_control").write_text("+cpu +memory")
                (folder / "cgroup.subtree_control").write_text("+cpu +memory")


def _remove_the_dead(base: Path) -> None:
    for folder in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # its processes are still running
            keeper = folder / KEEPER / "cgroup.procs"
            if not keeper.exists() or not keeper.read_text():
                for group in (*(Path(entry) for entry in os.scandir(folder) if entry.is_dir()), folder):
                    group.rmdir()
