"""How close a job that finds its own size comes to the best fixed size, chosen with hindsight: made-up jobs
(`curves.py`) are run by what decides (`master/core/scaling/size_policy.py`), and beside it by the rule of KubeDL's
scaling.

    python benchmarks/scaling.py                # seeds 0 to 199
    python benchmarks/scaling.py --story 17     # one job, decision by decision
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from curves import FAMILIES, Job, make_job
from measure.report import table

from outrider.master.core.scaling import size_policy
from outrider.master.core.scaling.size_policy import Limits, Policy
from outrider.master.core.state.scaling import Rate, Search

MARK = 0.95
PAUSE = 2.7
"""Seconds without a step for each change of the world: what `benchmarks/cluster.py` has, new pods importing torch."""
PODS = 10.0
"""Seconds until new pods run, during which the old generation continues training."""
WARM_UP = 3
"""Steps after each change that are not measured, and three times as slow."""
SAMPLED = 60.0
"""Seconds from one window to the next while nothing is being decided."""
LEAST_WINDOW = 5
KUBEDL_STEPS, KUBEDL_SAMPLES, KUBEDL_LONGEST = 50, 5, 1.0
"""A log line each so many steps; so many lines a decision; longer latencies are dropped (read in its source)."""


@dataclass(slots=True)
class Run:
    """One job being run. `made`: samples of one member's step."""

    job: Job
    random: np.random.Generator
    size: int
    at: float = 0.0
    made: float = 0.0
    changes: int = 0
    story: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.at >= self.job.seconds

    def spend(self, seconds: float) -> None:
        """Trains, without being looked at."""
        ends = [begins for begins, _ in self.job.phases[1:] if self.at < begins < self.at + seconds] + [
            self.at + seconds
        ]
        for end in ends:
            end = min(end, self.job.seconds)
            self.made += max(0.0, end - self.at) * self.job.rate(self.size, self.at)
            self.at = max(self.at, end)

    def steps(self, count: int) -> np.ndarray:
        """Seconds of each."""
        usual = self.size / self.job.rate(self.size, self.at)
        seconds = usual * np.exp(self.random.normal(-(self.job.noise**2) / 2, self.job.noise, count))
        before = self.at
        self.at += float(seconds.sum())
        self.made += count * self.size * max(0.0, min(1.0, (self.job.seconds - before) / (self.at - before)))
        return seconds

    def change(self, size: int) -> None:
        if size > self.size:
            self.spend(PODS)
        self.size, self.changes = size, self.changes + 1
        self.at += PAUSE + 2 * WARM_UP * size / self.job.rate(size, self.at)
        self.spend(WARM_UP * size / self.job.rate(size, self.at))


def window(run: Run, count: int) -> Rate:
    seconds = run.steps(count)
    middle = float(np.median(seconds))
    spread = float(np.median(np.abs(seconds - middle))) * 1.4826 / middle
    return Rate(run.size / middle, size_policy.error_of(spread, count), count, run.at)


def ours(job: Job, policy: Policy, random: np.random.Generator) -> Run:
    limits = Limits(job.sizes[0], job.most, job.unit)
    run, search = Run(job, random, job.sizes[0]), Search()
    while not run.is_over:
        if search.settled is not None:
            run.spend(max(0.0, SAMPLED - size_policy.WINDOW * job.step_seconds))
        count = size_policy.WINDOW if search.settled is not None else LEAST_WINDOW
        size_policy.measured(search, run.size, window(run, count))
        decision = size_policy.decide(search, run.size, limits, policy, run.at)
        if decision.size != run.size:
            run.story.append(f"{run.at:9.0f} s  {decision.reason}")
            run.change(decision.size)
    return run


def kubedl(job: Job, _policy: Policy, random: np.random.Generator) -> Run:
    """Doubles while the last of five lines shows a lower latency a member than before; stops for good otherwise."""
    run, last, goes_on = Run(job, random, job.sizes[0]), 0.0, True
    while not run.is_over:
        latencies = [window(run, 1) for _ in _lines(run)] if goes_on else []
        if not latencies:
            run.spend(job.seconds)
            continue
        rate = latencies[-1].samples
        if last and rate <= last:
            goes_on = False
            run.change(max(run.size // 2, job.sizes[0]))
        elif run.size * 2 > job.most:
            goes_on = False
        else:
            last = rate
            run.change(run.size * 2)
    return run


def _lines(run: Run) -> Iterator[int]:
    """What is not dropped: nothing, where steps are longer than it takes."""
    usual = run.size / run.job.rate(run.size, run.at)
    for number in range(KUBEDL_SAMPLES):
        if usual <= KUBEDL_LONGEST:
            run.spend((KUBEDL_STEPS - 1) * usual)
            yield number


def share(way: Callable[[Job, Policy, np.random.Generator], Run], job: Job, policy: Policy) -> float:
    """Of what the best fixed size makes in the whole run."""
    return way(job, policy, np.random.default_rng([job.seed, 1])).made / job.made(hindsight(job, policy))


def hindsight(job: Job, policy: Policy) -> int:
    """The best fixed size, by the same rule."""
    return size_policy.best({size: Rate(job.made(size), 0.0, 1, 0.0) for size in job.sizes}, policy.min_gain)


def measure(seeds: range, policy: Policy) -> list[tuple[str, int, float, float]]:
    """(family, seed, ours, KubeDL's)."""
    jobs = [make_job(seed) for seed in seeds]
    return [(job.family, job.seed, share(ours, job, policy), share(kubedl, job, policy)) for job in jobs]


def report(found: list[tuple[str, int, float, float]]) -> str:
    rows = []
    for family in (*FAMILIES, "all"):
        these = [(mine, peer) for name, _, mine, peer in found if family in (name, "all")]
        mine, peer = (np.array(values) for values in zip(*these, strict=True))
        rows.append((
            family, str(len(these)), f"{mine.mean():.3f}", f"{np.median(mine):.3f}", f"{mine.min():.3f}",
            f"{(mine >= MARK).mean():.0%}", f"{peer.mean():.3f}", f"{np.median(peer):.3f}",
            f"{mine.mean() / peer.mean():.2f}",
        ))  # fmt: skip
    return table(
        ("family", "jobs", "mean", "median", "least", f"≥ {MARK:.0%}", "KubeDL: mean", "median", "ratio"), rows
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--min-gain", type=float, default=0.0, help="0: the most samples a second, whatever they cost")
    parser.add_argument("--story", type=int, help="a seed")
    asked = parser.parse_args()
    policy = Policy(min_gain=asked.min_gain)
    if asked.story is not None:
        job = make_job(asked.story)
        run = ours(job, policy, np.random.default_rng([job.seed, 1]))
        best = hindsight(job, policy)
        print(
            "\n".join([f"{job.family}, {job.sizes}, {job.step_seconds:.3g} s a step, {job.seconds:.0f} s", *run.story])
        )
        print(f"made {run.made:.0f} of {job.made(best):.0f}, which {best} members make; {share(ours, job, policy):.3f}")
        return 0
    found = measure(range(asked.first, asked.first + asked.seeds), policy)
    print(report(found))
    mean = float(np.mean([mine for _, _, mine, _ in found]))
    worst = sorted(found, key=lambda each: each[2])[:8]
    print("least:", ", ".join(f"{seed} ({family}) {mine:.2f}" for family, seed, mine, _ in worst))
    return 0 if mean >= MARK else 1


if __name__ == "__main__":
    sys.exit(main())
