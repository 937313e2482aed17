"""What the windows of steps (`training_hooks/telemetry/step_window.py`) cost a training loop: DDP on gloo with steps of
about 10 ms, a full Flight Recorder, and blocks of steps that take turns, watched and not watched.

Printed are the median steps of both, what a step of a window (processor time of the training's thread) and the one in
which the recorder is read (time) take beyond the ordinary ones around them, and what share of the time that is.

    python benchmarks/sampling.py --seconds 240
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from measure.processes import load
from measure.report import table, write
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers

from training_hooks.abi import progress_page
from training_hooks.rank import worker
from training_hooks.telemetry import busy_time, flight_recorder, step_counter

STEP, BLOCK = 0.010, 30.0
ENTRIES, AROUND = 2000, 20
"""That the recorder keeps, and ordinary steps before and after others that these are compared with."""
MARK = 0.002
"""Of the time, at most."""


@dataclass(slots=True)
class Step:
    took: float
    cpu: float
    kind: str
    """ordinary, window, or reading: between a window's end and its numbers on the page."""


class Loop:
    def __init__(self, watched: worker.Worker) -> None:
        self.watched, self.count = watched, step_counter.hook(watched)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-9)
        self.x, self.wide = torch.randn(32, 64), torch.randn(256, 256)
        self.times = 1
        while statistics.median(self.step().cpu for _ in range(9)) < STEP:
            self.times += 1
        for _ in range(ENTRIES):
            dist.all_reduce(self.x)

    def step(self) -> Step:
        sampler, words = self.watched.sampler, self.watched.page.words
        in_window, written = sampler.armed and bool(sampler.marks), words[progress_page.WINDOW]
        began, cpu = time.perf_counter(), time.thread_time()
        for _ in range(self.times):
            self.wide @ self.wide
        self.optimizer.zero_grad()
        self.model(self.x).sum().backward()
        self.optimizer.step()
        took, cpu = time.perf_counter() - began, time.thread_time() - cpu
        is_read = sampler.whole is not None or words[progress_page.WINDOW] != written
        return Step(took, cpu, "reading" if is_read else "window" if in_window else "ordinary")

    def block(self, is_watched: bool, seconds: float) -> list[Step]:
        handle = optimizers.register_optimizer_step_post_hook(self.count) if is_watched else None
        until, found = time.monotonic() + seconds, []
        while time.monotonic() < until:
            found.append(self.step())
        if handle is not None:
            handle.remove()
        return found


def beside(steps: list[Step], kind: str, what: str) -> list[float]:
    """Of each run of steps of this kind: what they take together beyond as many of the ordinary ones around them, which
    met the same machine."""
    found, at = [], 0
    while at < len(steps):
        end = at
        while end < len(steps) and steps[end].kind == kind:
            end += 1
        if end > at:
            near = [step for step in steps[max(0, at - AROUND) : end + AROUND] if step.kind == "ordinary"]
            usual = statistics.median(getattr(step, what) for step in near)
            found.append(sum(getattr(step, what) - usual for step in steps[at:end]))
        at = end + 1
    return found


def report(watched: list[Step], alone: list[Step]) -> int:
    marked, read = beside(watched, "window", "cpu"), beside(watched, "reading", "took")
    if not marked or not read:
        raise SystemExit("no window was measured: more --seconds are needed here")
    mark, reading = statistics.median(marked) / busy_time.MOST, statistics.median(read)
    every = sum(step.took for step in watched) / len(read)
    share = (reading + busy_time.MOST * max(0.0, mark)) / every
    rows = [
        ["a step, not watched", f"{1e3 * statistics.median(step.took for step in alone):.3f} ms"],
        ["a step, watched", f"{1e3 * statistics.median(step.took for step in watched):.3f} ms"],
        ["a step of a window takes more", f"{1e6 * mark:.0f} µs"],
        ["the reading of the recorder takes", f"{1e3 * reading:.1f} ms"],
        ["share of the time", f"{share:.3%}"],
    ]
    print(table(["", f"median of {len(read)} windows"], rows))
    result = {"mark": mark, "reading": reading, "every": every, "share": share}
    print(f"a window in {every:.1f} s, load {load():.1f}; written to {write('sampling', result)}")
    return int(share > MARK)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=240.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="ob-") as folder:
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store"), rank=0, world_size=1)
        watched = worker.Worker(folder, 0, (1, 1))
        watched.page.source = progress_page.FROM_OPTIMIZER
        flight_recorder.listen(watched)
        loop = Loop(watched)
        found: dict[bool, list[Step]] = {True: [], False: []}
        for number in range(2 * max(1, int(args.seconds / BLOCK / 2))):
            found[number % 2 == 1] += loop.block(number % 2 == 1, BLOCK)
        watched.channel.close()
        dist.destroy_process_group()
    return report(found[True], found[False])


if __name__ == "__main__":
    sys.exit(main())
