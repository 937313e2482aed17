"""How well slow members are named: made-up jobs (`straggler_jobs.py`) go through what decides, and what it says is
compared with what was done to them. Recall by the factor of slowness, and false alarms an hour of a healthy member.
Then jobs that were recorded on a real machine (`straggler_record.py`) go the same way.

    python benchmarks/stragglers.py                       # 400 episodes a factor, 20,000 healthy member-hours
    python benchmarks/stragglers.py --episodes 50 --hours 1000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import straggler_replay
from measure.report import OUT, table, write
from straggler_jobs import SLOW_MINUTES, Job, Slow, Window, make_job, windows

from outrider.master.core.state.stragglers import Comparison
from outrider.master.core.stragglers import detector as stragglers_detector
from outrider.wire.ids import MemberId
from outrider.wire.messages.report import OwnTime
from training_hooks.telemetry import busy_time

FACTORS = (1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 3.0)
MARKS = {1.5: 0.95, 2.0: 0.99}
"""The least recall at a factor."""
FALSE_ALARMS = 0.001
"""The most an hour of a healthy member."""
BEFORE, HOURS_A_JOB = 300.0, 4.0
Named = Callable[[Job, Iterable[Window]], list[tuple[float, int]]]
"""(when, member) of every time a member was named."""


@dataclass(slots=True)
class Count:
    episodes: int = 0
    named: int = 0
    others: int = 0
    """Healthy members named meanwhile."""
    seconds: float = 0.0
    """To the naming, of those named."""


def sampling(job: Job) -> tuple[int, int]:
    """Stride and number of steps, as the hooks choose them."""
    stride: int = busy_time.stride(job.step_seconds)
    return stride, busy_time.count(stride)


def by_the_master(job: Job, seen: Iterable[Window]) -> list[tuple[float, int]]:
    """The members that the master's core reports, report after report."""
    comparison, found = Comparison(), []
    ranks = job.members * job.nproc
    for window in seen:
        own = np.nan_to_num(np.nanmedian(np.where(window.left_out, np.nan, window.own), axis=1))
        for member in range(job.members):
            windows = tuple(
                OwnTime(local, window.first_step, window.own.shape[1], "recorder", float(own[rank]), 0.0,
                        max(window.step_seconds, float(own[rank])))
                for local, rank in enumerate(range(member * job.nproc, (member + 1) * job.nproc))
                if own[rank] > 0
            )  # fmt: skip
            for named in stragglers_detector.take(comparison, MemberId(str(member)), windows, ranks):
                if not named.is_over:
                    found.append((window.ends, int(named.member)))
    return found


def episode(named: Named, factor: float, random: np.random.Generator, count: Count) -> None:
    job = make_job(random)
    member, begins = int(random.integers(job.members)), BEFORE
    slow = Slow(member, factor, begins, begins + 60 * SLOW_MINUTES)
    found = named(job, windows(job, slow.ends, *sampling(job), slow, random))
    hits = [at - begins for at, who in found if who == member and at > begins]
    count.episodes += 1
    count.named += bool(hits)
    count.seconds += hits[0] if hits else 0.0
    count.others += sum(1 for _, who in found if who != member)


def healthy(named: Named, hours: float, random: np.random.Generator) -> tuple[int, float]:
    """False alarms, and the member-hours in which they came."""
    alarms, done = 0, 0.0
    while done < hours:
        job = make_job(random)
        seconds = 3600 * HOURS_A_JOB
        alarms += len(named(job, windows(job, seconds, *sampling(job), None, random)))
        done += job.members * seconds / 3600
    return alarms, done


def measure(named: Named, episodes: int, hours: float, seed: int) -> tuple[dict[float, Count], int, float]:
    random = np.random.default_rng(seed)
    counts = {factor: Count() for factor in FACTORS}
    for factor, count in counts.items():
        for _ in range(episodes):
            episode(named, factor, random, count)
    alarms, done = healthy(named, hours, random)
    return counts, alarms, done


def plot(counts: dict[float, Count], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.plot(list(counts), [100 * c.named / c.episodes for c in counts.values()], marker="o")
    for factor, least in MARKS.items():
        axes.plot([factor], [100 * least], marker="_", markersize=18, color="tab:red")
    axes.set(xlabel="times slower than the others", ylabel="named within 10 minutes, %", ylim=(-2, 102))
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--hours", type=float, default=20000.0, help="of healthy members")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    counts, alarms, hours = measure(by_the_master, args.episodes, args.hours, args.seed)
    rows = [[f"{f} ×", f"{c.named / c.episodes:.1%}", f"{c.seconds / max(c.named, 1):.0f} s", str(c.others)]
            for f, c in counts.items()]  # fmt: skip
    print(table(["slower by", "named", "after", "others named"], rows))
    print(f"\n{alarms} false alarms in {hours:.0f} healthy member-hours: {alarms / hours:.4f} an hour")
    recall = {str(factor): count.named / count.episodes for factor, count in counts.items()}
    print(f"written to {write('stragglers', {'recall': recall, 'false_alarms_an_hour': alarms / hours})}")
    plot(counts, OUT / "stragglers.png")
    recorded = straggler_replay.all_replayed()
    print("\n" + straggler_replay.report(recorded))
    missed = [f for f, least in MARKS.items() if counts[f].named < least * counts[f].episodes]
    return int(bool(missed) or alarms > FALSE_ALARMS * hours or not straggler_replay.is_right(recorded))


if __name__ == "__main__":
    sys.exit(main())
