"""How long a training on a real cluster stands still after a fault, beside the marks that we hold ourselves to.

Each repeat is a fresh ElasticJob of 4 pods with one process each, hurt once, and read from the lines that its processes
write. Nodes and this script must be one machine, or share FOLDERS and their clock.

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
from datetime import datetime
from pathlib import Path

from measure.pods import PodJob, kubectl
from measure.report import spread, table, write
from measure.steps import Step, first_world

FOLDERS = Path("/var/tmp/outrider-bench")
PODS = 4
WARM_STEPS = 60
START_LIMIT, LIMIT = 120.0, 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """One fault and what it may cost."""

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
    """With the lab's own command; another cluster would need a NetworkPolicy that its network enforces."""
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


def measure(name: str, number: int, image: str) -> float | str:
    """Seconds, or a sentence on what went wrong."""
    mark, folder = MARKS[name], FOLDERS / f"{name}-{number}-{os.getpid()}"
    job = PodJob(f"bench-{name}-{number}", folder, image, PODS, mark.minimum)
    try:
        first = job.wait(lambda: first_world(job.trace, set(), PODS), START_LIMIT)
        if first is None or not job.wait(lambda: job.trace.highest() >= WARM_STEPS, LIMIT):
            return f"no training within {START_LIMIT:g} s\n{job.story()}"
        old = {step.pid for step in first}
        moment = mark.hurt(job, 1 + number % (PODS - 1))
        world = job.wait(lambda: first_world(job.trace, old, mark.world), LIMIT)
        if world is None:
            return f"no world of {mark.world or 'any'} ranks within {LIMIT:g} s\n{job.story()}"
        if any(step.step != step.loaded + 1 or not step.loaded for step in world):
            return f"it does not go on behind a checkpoint: {[(s.rank, s.loaded, s.step) for s in world]}"
        return max(step.time for step in world) - _origin(mark, job, old, world, moment)
    finally:
        job.close()
        shutil.rmtree(folder, ignore_errors=True)


def _origin(mark: Mark, job: PodJob, old: set[int], world: list[Step], moment: float) -> float:
    if mark.origin == "last step":
        begins = min(step.time for step in world)
        return max(step.time for pid in old for step in job.trace.by_pid[pid] if step.time < begins)
    return _containers_run(job) if mark.origin == "containers" else moment


def _containers_run(job: PodJob) -> float:
    """When the newest pod's last container began: the kubelet tells whole seconds, so that up to one is counted too
    much."""
    newest = max(job.pods(), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    starts = [status["state"]["running"]["startedAt"] for status in newest["status"]["containerStatuses"]]
    return max(datetime.fromisoformat(start.replace("Z", "+00:00")).timestamp() for start in starts)


def run_all(names: Sequence[str], repeats: int, image: str) -> dict[str, list[float | str]]:
    results: dict[str, list[float | str]] = {name: [] for name in names}
    for name in names:
        for number in range(repeats):
            found = measure(name, number, image)
            results[name].append(found)
            shown = f"{found:.2f} s" if isinstance(found, float) else f"WRONG: {found}"
            print(f"{name:10} {number}  {shown}  load {os.getloadavg()[0]:.1f}", flush=True)
    return results


def summary(results: dict[str, list[float | str]]) -> str:
    rows = []
    for name, found in results.items():
        good = [value for value in found if isinstance(value, float)]
        wrong = f" ({len(found) - len(good)} of {len(found)} went wrong)" if len(good) < len(found) else ""
        rows.append([MARKS[name].title, f"{MARKS[name].seconds:.0f} s", spread(good) + wrong])
    return table(["what", "mark", "measured"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--marks", nargs="+", choices=MARKS, default=list(MARKS))
    parser.add_argument("--image", default="outrider/digits:dev", help="one with python and torch")
    args = parser.parse_args()
    names = [name for name in args.marks if name != "cut" or "OUTRIDER_LAB" in os.environ]
    if names != args.marks:
        print("cut is left out: OUTRIDER_LAB names no command that can cut a pod off")
    kubectl("get", "crd", "elasticjobs.outrider.dev")
    results = run_all(names, args.repeats, args.image)
    print(f"\n{summary(results)}")
    write("cluster", {"command": sys.argv, "results": results})
    return 0 if all(isinstance(value, float) for found in results.values() for value in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
