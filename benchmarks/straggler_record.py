"""Records what real ranks tell of their own time, for `stragglers.py` and the tests to play again: a job of two
members, left alone, beside whatever else runs on the machine, or with something done to one of them or to both.

Each member has a cgroup and a core of its own and but for the noisy job goes before everything else there. It trains
undisturbed for two windows; then it is hurt. Needs root, two cores and cgroups of version 1.

    python benchmarks/straggler_record.py [throttled-2 contended …]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measure.groups import Groups, groups
from measure.ours import OutriderJob
from measure.report import machine
from straggler_replay import TRACES, pace

from outrider.sidecar.shell.step_windows import WindowReader
from outrider.wire.ids import Generation

PROBE = str(Path(__file__).parent / "straggler_probe.py")
HURT = 1
"""The member to which something is done."""
WORK = 0.003
SPINNING = 3
"""Processes that never wait, beside the one that is contended."""
BEFORE = 2
"""Windows of both, before that."""
BEGINNING, LOOK = 180.0, 0.1


@dataclass(frozen=True, slots=True)
class Usual:
    """What a member needs while nothing is done to it, in seconds a step. Means, but for `own`."""

    own: float
    cpu: float
    """Of all its processes."""
    step: float


class Course:
    """One job that is being recorded."""

    def __init__(self, job: OutriderJob, folder: Path, own: Groups | None) -> None:
        self.job, self.folder, self.groups = job, folder, own
        self.spinning: list[subprocess.Popen[bytes]] = []
        self.rows: list[dict[str, Any]] = []
        self.used: list[tuple[int, float]] = []
        """(step, processor seconds of all processes of the hurt one's group by then)."""
        members = job.home / "jobs" / job.job / "members"
        self.readers = [WindowReader(members / f"worker-{n}") for n in range(2)]

    def read(self) -> None:
        """`at`: seconds since the job was started."""
        for member, reader in enumerate(self.readers):
            for own in reader.read(Generation(1, 1), (0,)):
                self.rows.append({"at": round(time.time() - self.job.started, 2), "member": member, **asdict(own)})
                if member == HURT and self.groups is not None:
                    self.used.append((own.first_step, self.groups.used(HURT)))

    def windows(self) -> int:
        """The number of windows of the member that has reported fewer."""
        return min(sum(row["member"] == member for row in self.rows) for member in range(2))

    def usual(self) -> Usual:
        rows = [row for row in self.rows if row["member"] == HURT]
        (first, used), (last, used_then) = self.used[0], self.used[-1]
        own = min(float(row["busy"]) for row in rows)
        return Usual(own, (used_then - used) / (last - first), pace(rows))

    # -- what is done -------------------------------------------------------------------------------------------------
    def throttle(self, factor: float, *members: int) -> None:
        """Its CPU limit is what a member that is so many times slower needs."""
        usual = self.usual()
        for member in members or (HURT,):
            assert self.groups is not None
            self.groups.limit(member, usual.cpu / (usual.step + (factor - 1) * usual.own))

    def give(self, what: str, factor: float, *members: int) -> None:
        """The probe itself does more."""
        usual = self.usual()
        for member in members or (HURT,):
            path = self.folder / f"hurt-worker-{member}"
            path.with_suffix(".new").write_text(json.dumps({what: (factor - 1) * usual.own}))
            path.with_suffix(".new").rename(path)

    def contend(self) -> None:
        assert self.groups is not None
        for _ in range(SPINNING):
            spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            self.spinning.append(spinning)
            os.sched_setaffinity(spinning.pid, {HURT})
            (self.groups.of(HURT) / "cgroup.procs").write_text(str(spinning.pid))

    def end(self) -> None:
        for spinning in self.spinning:
            spinning.kill()
            spinning.wait()


@dataclass(frozen=True, slots=True)
class Kind:
    """Records one job. `cause` is the cause that must be reported for the member; empty if none must be reported."""

    do: Callable[[Course], None]
    cause: str = ""
    factor: float = 1.0
    flags: tuple[str, ...] = ()
    is_apart: bool = True
    seconds: float = 100.0
    """From then on."""


def nothing(course: Course) -> None:
    pass


# A DataLoader's worker hides as much of its time as the step takes anyhow: only what is beyond it is waited for.
KINDS = {
    "healthy": Kind(nothing),
    "noisy": Kind(nothing, is_apart=False),
    "saves and validation": Kind(nothing, flags=("--save-every", "16", "--validate-every", "32")),
    "all slower": Kind(lambda course: course.throttle(3.0, 0, 1)),
    "throttled-1.5": Kind(lambda course: course.throttle(1.5), "throttled", 1.5, seconds=150.0),
    "throttled-2": Kind(lambda course: course.throttle(2.0), "throttled", 2.0, seconds=150.0),
    "throttled-3": Kind(lambda course: course.throttle(3.0), "throttled", 3.0),
    "contended": Kind(Course.contend, "contended"),
    "data": Kind(lambda course: course.give("data", 1 + 1.5 * course.usual().step / course.usual().own), "data"),
    "computing-1.5": Kind(lambda course: course.give("computing", 1.5), "computing", 1.5),
    "computing-2": Kind(lambda course: course.give("computing", 2.0), "computing", 2.0),
    "waiting": Kind(lambda course: course.give("waiting", 3.0), "waiting", 3.0),
}


def record(kind: Kind, folder: Path, own: Groups | None) -> tuple[list[dict[str, Any]], int]:
    """The windows, and how many of them were reported before the fault."""
    flags = ["--work", str(WORK), "--folder", str(folder), *kind.flags]
    flags += [] if own is None else ["--groups", str(own.folder)]
    job = OutriderJob(2, [PROBE, *flags], folder / "log", flags=["--silent-after", "30"])
    job.start()
    course = Course(job, folder, own)
    try:
        follow(course, BEGINNING, lambda: course.windows() >= BEFORE)
        if course.windows() < BEFORE:
            raise SystemExit(f"the ranks reported no windows; the log: {job.log.read_text()[-2000:]}")
        before = len(course.rows)
        kind.do(course)
        follow(course, kind.seconds, lambda: False)
        return course.rows, before
    finally:
        course.end()
        job.stop()


def follow(course: Course, seconds: float, enough: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not enough():
        course.read()
        time.sleep(LOOK)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    args = parser.parse_args()
    TRACES.mkdir(exist_ok=True)
    for name in args.kinds:
        kind = KINDS[name]
        with tempfile.TemporaryDirectory(prefix="ob-") as folder:
            if kind.is_apart:
                with groups(2) as own:
                    rows, before = record(kind, Path(folder), own)
            else:
                rows, before = record(kind, Path(folder), None)
        trace = {"kind": name, "slow": HURT if kind.cause else None, "cause": kind.cause, "factor": kind.factor,
                 "windows_before": before, "machine": machine(), "windows": rows}  # fmt: skip
        path = TRACES / f"{name.replace(' ', '-')}.json"
        path.write_text(json.dumps(trace, indent=1) + "\n")
        print(f"{name}: {len(rows)} windows of 2 members, {before} of them before, load {os.getloadavg()[0]:.1f}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
