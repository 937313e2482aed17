"""Real jobs with a member beside which something else takes the processor, and real jobs without: who is named, with
what cause, and how soon.

Each job is `outrider run --isolate --member-cpus 0.5` with three members, so that each has a cgroup with a CPU limit,
as a container has. What runs beside the training in the second member's cgroup is busy for 90 % of the time, from the
beginning. All of it goes before what else the machine does. Needs root and cgroups of version 1.

    python benchmarks/straggler_runs.py --runs 10 [--armed]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from measure.groups import first
from measure.ours import OutriderJob
from measure.processes import load
from measure.report import spread, table, write

from outrider.master.local.sandbox.cgroups import PREFIX

PROBE = str(Path(__file__).parent / "straggler_probe.py")
MEMBERS, HURT, CPUS, WORK = 3, 1, 0.5, 0.003
BUSY, PERIOD = 0.9, 0.1
BURN = f"""
import time
while True:
    began = time.monotonic()
    while time.monotonic() < began + {BUSY * PERIOD}: pass
    time.sleep({PERIOD - BUSY * PERIOD})
"""
ARMED = f"cpu-load={100 * BUSY:.0f}@rank-index={HURT}"
BEGINNING = 180.0
RECALL = 0.95


@dataclass(frozen=True, slots=True)
class Run:
    """`named`: of every member that was named, with its cause, and the seconds since all ranks made steps."""

    is_loaded: bool
    named: list[tuple[str, str, float, float]]
    seconds: float
    """For which it was watched."""
    load: float

    @property
    def is_found(self) -> bool:
        return any(member == f"worker-{HURT}" for member, *_ in self.named)

    @property
    def innocent(self) -> int:
        hurt = f"worker-{HURT}" if self.is_loaded else ""
        return sum(1 for member, *_ in self.named if member != hurt)


def stragglers(job: OutriderJob) -> list[dict[str, Any]]:
    path = job.home / "jobs" / job.job / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [event for event in found if event["kind"] == "Straggler"]


def steps(job: OutriderJob) -> list[int]:
    """By member; none where the job cannot be asked yet."""
    try:
        return [int(member["step"] or 0) for member in job.status()["members"]]
    except (subprocess.SubprocessError, ValueError):
        return []


def wait_for_training(job: OutriderJob) -> float:
    """When all ranks made steps."""
    until = time.time() + BEGINNING
    while time.time() < until:
        made = steps(job)
        if len(made) == MEMBERS and min(made) > 2:
            return time.time()
        time.sleep(0.3)
    raise SystemExit(f"the ranks made no steps; the log: {job.log.read_text()[-3000:]}")


def run(is_loaded: bool, seconds: float, groups: Path, is_armed: bool) -> Run:
    with tempfile.TemporaryDirectory(prefix="ob-") as name:
        folder = Path(name)
        flags = ["--isolate", "--member-cpus", str(CPUS), "--silent-after", "30"]
        flags += ["--chaos", ARMED] if is_loaded and is_armed else []
        job = OutriderJob(MEMBERS, [PROBE, "--work", str(WORK), "--folder", name], folder / "log", flags=flags)
        job.start()
        burning = None
        try:
            since = wait_for_training(job)
            if is_loaded and not is_armed:
                burning = subprocess.Popen([sys.executable, "-c", BURN])
                (member,) = groups.glob(f"{PREFIX}*/worker-{HURT}")
                (member / "cgroup.procs").write_text(str(burning.pid))
                since = time.time()
            while time.time() < since + seconds and not (is_loaded and stragglers(job)):
                time.sleep(0.5)
            named = [named_in(event, since) for event in stragglers(job)]
            return Run(is_loaded, named, time.time() - since, load())
        finally:
            if burning is not None:
                burning.kill()
                burning.wait()
            job.stop()


def named_in(event: dict[str, Any], since: float) -> tuple[str, str, float, float]:
    about, moment = event["detail"], datetime.fromisoformat(event["time"]).timestamp()
    return event["member"], about["cause"], float(about["factor"]), moment - since


def row(number: int, run: Run) -> list[str]:
    reported = ", ".join(f"{member} ({cause}, {factor:.1f} ×)" for member, cause, factor, _ in run.named) or "none"
    after = ", ".join(f"{seconds:.0f} s" for *_, seconds in run.named) or "–"
    return [
        str(number),
        f"worker-{HURT}" if run.is_loaded else "none",
        reported,
        after,
        f"{run.seconds:.0f} s",
        f"{run.load:.1f}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="of either kind; they take turns")
    parser.add_argument("--seconds", type=float, default=150.0, help="until a loaded one counts as not found")
    parser.add_argument("--watched", type=float, default=75.0, help="seconds for which one without is watched")
    parser.add_argument("--armed", action="store_true", help=f"the load is `--chaos '{ARMED}'`, armed before the start")
    args = parser.parse_args()
    runs = []
    with first() as groups:
        for number in range(1, 2 * args.runs + 1):
            is_loaded = number % 2 == 1
            runs.append(run(is_loaded, args.seconds if is_loaded else args.watched, groups, args.armed))
            print(" | ".join(row(number, runs[-1])), flush=True)
    return report(runs)


def report(runs: list[Run]) -> int:
    head = ["run", "load beside", "named", "after", "watched", "machine's load"]
    print("\n" + table(head, [row(number, run) for number, run in enumerate(runs, 1)]))
    loaded = [run for run in runs if run.is_loaded]
    found, innocent = sum(run.is_found for run in loaded), sum(run.innocent for run in runs)
    after = [seconds for run in loaded for member, *_, seconds in run.named if member == f"worker-{HURT}"]
    hours = sum((MEMBERS - run.is_loaded) * run.seconds for run in runs) / 3600
    print(f"\n{found} of {len(loaded)} loaded members named, {innocent} others in {hours:.2f} member-hours; "
          f"seconds until then: {spread(after)}")  # fmt: skip
    print(f"written to {write('straggler-runs', {'runs': [asdict(run) for run in runs]})}")
    return int(found < RECALL * len(loaded) or innocent > 0)


if __name__ == "__main__":
    sys.exit(main())
