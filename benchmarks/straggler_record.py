"""Records what real ranks tell of their own time, for `stragglers.py` to play again: a job of two members, left alone
(healthy), beside whatever else runs on the machine (noisy), or with one member's rank in a cgroup that may use a tenth
of a core (throttled).

Each rank has a core of its own, and but for the noisy ones goes before everything else on it. Needs root, two cores and
cgroups of version 1.

    python benchmarks/straggler_record.py --seconds 70 [healthy noisy throttled]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measure.ours import OutriderJob
from measure.report import machine

from sidecar.shell.windows import WindowReader
from wire.ids import Generation

TRACES = Path(__file__).parent / "traces"
PROBE = str(Path(__file__).parent / "straggler_probe.py")
HURT = 1
"""The member that is throttled."""
FIRST_ON_ITS_CORE = -15


@contextmanager
def nothing(pids: list[int]) -> Iterator[None]:
    yield


@contextmanager
def throttled(pids: list[int]) -> Iterator[None]:
    group = Path(f"/sys/fs/cgroup/cpu/outrider-bench-{os.getpid()}")
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text("50000")
    (group / "cpu.cfs_quota_us").write_text("5000")
    (group / "cgroup.procs").write_text(str(pids[HURT]))
    try:
        yield
    finally:
        (group.parent / "cgroup.procs").write_text(str(pids[HURT]))
        group.rmdir()


KINDS: dict[str, Callable[[list[int]], Any]] = {"healthy": nothing, "noisy": nothing, "throttled": throttled}


def ranks_of(job: OutriderJob) -> list[int]:
    """The pids of the two ranks, once both make steps."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            members = job.status()["members"]
        except (subprocess.SubprocessError, ValueError):
            members = []
        if len(members) == 2 and all(m["step"] > 2 and m["pids"]["workers"] for m in members):
            return [m["pids"]["workers"][0] for m in members]
        time.sleep(0.2)
    raise SystemExit(f"the ranks made no steps; the log: {job.log}")


def record(kind: str, seconds: float, folder: Path) -> list[dict[str, Any]]:
    job = OutriderJob(2, [PROBE, "3"], folder / "log", flags=["--silent-after", "30"])
    job.start()
    try:
        pids = ranks_of(job)
        for core, pid in enumerate(pids):
            os.sched_setaffinity(pid, {core})
            if kind != "noisy":
                os.setpriority(os.PRIO_PROCESS, pid, FIRST_ON_ITS_CORE)
        readers = [WindowReader(job.home / "jobs" / job.job / "members" / f"worker-{n}") for n in range(2)]
        rows, until = [], time.monotonic() + seconds
        with KINDS[kind](pids):
            while time.monotonic() < until:
                for member, reader in enumerate(readers):
                    rows += [{"member": member, **asdict(own)} for own in reader.read(Generation(1, 1), (0,))]
                time.sleep(0.5)
        return rows
    finally:
        job.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    parser.add_argument("--seconds", type=float, default=70.0)
    args = parser.parse_args()
    TRACES.mkdir(exist_ok=True)
    for kind in args.kinds:
        with tempfile.TemporaryDirectory(prefix="ob-") as folder:
            rows = record(kind, args.seconds, Path(folder))
        slow = HURT if kind == "throttled" else None
        trace = {"kind": kind, "slow": slow, "seconds": args.seconds, "machine": machine(), "windows": rows}
        (TRACES / f"{kind}.json").write_text(json.dumps(trace, indent=1) + "\n")
        print(f"{kind}: {len(rows)} windows of 2 members, load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
