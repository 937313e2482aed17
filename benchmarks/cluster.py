"""Measures how long training on a real cluster is interrupted by faults, beside torchrun and the required limits.

Each repeat is a new job of 4 pods with one process each (an ElasticJob; for torchrun a StatefulSet) with one fault,
measured from the lines that its processes write. Nodes and this script must be one machine, or share FOLDERS and their
clock.

    export KUBECONFIG=...           # outrider is installed there, and the nodes have the image
    python benchmarks/cluster.py --repeats 3
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from measure.api_writes import writes
from measure.pods import PodJob, kubectl
from measure.pods_peer import TorchrunPods
from measure.report import middle, spread, table, write
from measure.steps import Step, first_world

FOLDERS = Path("/var/tmp/outrider-bench")
PODS = 4
WARM_STEPS = 60
START_LIMIT, LIMIT = 120.0, 60.0
SETTLED = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """One fault and the most that it may cost."""

    title: str
    seconds: float
    minimum: int
    hurt: Callable[[PodJob, int], float]
    """Does it to a rank's pod; the moment in which it was done."""
    world: int | None = PODS
    """The size of the world that has to follow; None: any."""
    origin: str = "fault"
    """From when it counts: `fault`, `containers` (those of the replacement run) or `last step` of the old world."""


def crash(job: PodJob, rank: int) -> float:
    return job.kill_rank(rank)


def delete(job: PodJob, rank: int) -> float:
    return job.delete(job.pod_of(rank))


def evict(job: PodJob, rank: int) -> float:
    return job.evict(job.pod_of(rank))


def cut(job: PodJob, rank: int) -> float:
    """Cut the network with the lab's own command; another cluster would need a NetworkPolicy that is enforced."""
    pod = f"{job.namespace}/{job.pod_of(rank)}"
    subprocess.run([*shlex.split(os.environ["OUTRIDER_LAB"]), "cut", pod], check=True, capture_output=True)
    return time.time()


MARKS = {
    "crash": Mark("a process killed in its pod, to the first new step of every rank", 1.0, PODS, crash),
    "deleted": Mark("a pod deleted, to the first step of the survivors", 2.0, 2, delete, PODS - 1),
    "replaced": Mark("its replacement's containers run, to the first step of all", 2.0, PODS, delete,
                     origin="containers"),
    "evicted": Mark("an eviction, time without steps", 1.0, 2, evict, None, origin="last step"),
    "cut": Mark("a pod cut off the network, to the first step of the survivors", 6.0, 2, cut, PODS - 1),
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    launcher: str
    mark: str
    seconds: float | None
    wrong: str = ""
    """Why there is no result."""
    load: float = 0.0
    writes: dict[str, int] = dataclasses.field(default_factory=dict)
    """What the masters wrote to the API server within SETTLED seconds of the fault, by resource."""


def measure(launcher: type[PodJob], name: str, number: int, args: argparse.Namespace) -> Repeat:
    title = f"{launcher.launcher}-{name}-{number}"
    folder = FOLDERS / f"{title}-{os.getpid()}"
    job = launcher(f"bench-{title}", folder, args.image, PODS, MARKS[name].minimum)
    limit = LIMIT if launcher is PodJob else args.peer_limit
    try:
        seconds, written = hurt(job, MARKS[name], number, limit)
        return Repeat(launcher.launcher, name, seconds, "", os.getloadavg()[0], written)
    except Wrong as wrong:
        return Repeat(launcher.launcher, name, None, f"{wrong}\n{job.story()}", os.getloadavg()[0])
    finally:
        job.close()
        shutil.rmtree(folder, ignore_errors=True)


class Wrong(Exception):
    """A job that did not do what it should; the message says what."""


def hurt(job: PodJob, mark: Mark, number: int, limit: float) -> tuple[float, dict[str, int]]:
    """The seconds, and the writes to the API server meanwhile and after."""
    first = job.wait(lambda: first_world(job.trace, set(), PODS), START_LIMIT)
    if first is None or not job.wait(lambda: job.trace.highest() >= WARM_STEPS, START_LIMIT):
        raise Wrong(f"no training within {START_LIMIT:g} s")
    old, before = {step.pid for step in first}, writes()
    moment = mark.hurt(job, 1 + number % (PODS - 1))
    size = mark.world if type(job) is PodJob else None  # whatever torchrun makes of it counts
    world = job.wait(lambda: first_world(job.trace, old, size), limit)
    if world is None:
        raise Wrong(f"not within {limit:g} s")
    if any(step.step != step.loaded + 1 or not step.loaded for step in world):
        raise Wrong(f"it does not continue after a checkpoint: {[(s.rank, s.loaded, s.step) for s in world]}")
    seconds = max(step.time for step in world) - _origin(mark, job, old, world, moment)
    job.wait(lambda: time.time() > moment + SETTLED, SETTLED)
    return seconds, dict(writes() - before)


def _origin(mark: Mark, job: PodJob, old: set[int], world: list[Step], moment: float) -> float:
    if mark.origin == "last step":
        begins = min(step.time for step in world)
        return max(step.time for pid in old for step in job.trace.by_pid[pid] if step.time < begins)
    if mark.origin == "containers":
        newest = max(job.pods(), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return job.began(newest["metadata"]["name"])
    return moment


def run_all(launchers: Sequence[type[PodJob]], args: argparse.Namespace) -> list[Repeat]:
    """Run both launchers in turn. If torchrun misses the limit once, the scenario is not repeated for it."""
    results: list[Repeat] = []
    for name in args.marks:
        asked = list(launchers)
        for number in range(args.repeats):
            for launcher in list(asked):
                results.append(measure(launcher, name, number, args))
                print_repeat(results[-1], number)
                if results[-1].wrong and launcher is not PodJob:
                    asked.remove(launcher)
    return results


def print_repeat(repeat: Repeat, number: int) -> None:
    shown = repeat.wrong or f"{repeat.seconds:.2f} s"
    written = f"  writes {sum(repeat.writes.values())}" if repeat.writes else ""
    print(f"{repeat.mark:10} {repeat.launcher:9} {number}  {shown}  load {repeat.load:.1f}{written}", flush=True)


def summary(results: Sequence[Repeat], names: Sequence[str]) -> str:
    rows = []
    for name in names:
        ours, theirs = ([r for r in results if (r.launcher, r.mark) == (n, name)] for n in ("outrider", "torchrun"))
        medians = [middle([r.seconds for r in each if r.seconds is not None]) for each in (ours, theirs)]
        ratio = f"{medians[1] / medians[0]:.1f} ×" if medians[0] and medians[1] else "–"
        written = middle([float(sum(repeat.writes.values())) for repeat in ours if repeat.writes])
        rows.append([MARKS[name].title, f"{MARKS[name].seconds:.0f} s", _cell(ours), _cell(theirs), ratio,
                     "–" if written is None else f"{written:.0f}"])  # fmt: skip
    return table(["what", "mark", "Outrider", "torchrun", "ratio", f"writes in {SETTLED:.0f} s"], rows)


def _cell(repeats: Sequence[Repeat]) -> str:
    good = [repeat.seconds for repeat in repeats if repeat.seconds is not None]
    wrong = [repeat.wrong.partition("\n")[0] for repeat in repeats if repeat.seconds is None]
    if not good:
        return wrong[0] if wrong else "–"
    return spread(good) + (f" ({len(wrong)} of {len(repeats)} {wrong[0]})" if wrong else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--marks", nargs="+", choices=MARKS, default=list(MARKS))
    parser.add_argument("--image", default="outrider/digits:dev", help="one with python and torch")
    parser.add_argument("--peer-limit", type=float, default=60, metavar="SECONDS", help="wait this long for torchrun")
    parser.add_argument("--skip-peer", action="store_true")
    args = parser.parse_args()
    if "cut" in args.marks and "OUTRIDER_LAB" not in os.environ:
        args.marks = [name for name in args.marks if name != "cut"]
        print("cut is left out: OUTRIDER_LAB names no command that can cut a pod off")
    kubectl("get", "crd", "elasticjobs.outrider.dev")
    results = run_all([PodJob] if args.skip_peer else [PodJob, TorchrunPods], args)
    print(f"\n{summary(results, args.marks)}")
    write("cluster", {"command": sys.argv, "repeats": [dataclasses.asdict(repeat) for repeat in results]})
    return int(any(repeat.wrong for repeat in results if repeat.launcher == "outrider"))


if __name__ == "__main__":
    raise SystemExit(main())
