"""What the hooks cost a training: a real SGD.step() with and without the step hook, the hook by itself, and `batch`:
what the time account adds to each wait for a batch.

Both kinds of steps take turns in short blocks, so that the machine's mood falls on both, and the thread's own processor
time is compared: the median of the differences of neighbours, and the difference of the least of either kind, which is
what is left when nothing else runs.
Run: python benchmarks/hooks.py [--json]
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.optim import optimizer as optimizers

from training_hooks.rank import worker
from training_hooks.telemetry import step_counter

BLOCK = 50
BLOCKS = 1000
LIMIT = 0.5
"""Microseconds a step may cost more."""


def seconds_per_call(call: Callable[[], object], times: int = BLOCK) -> float:
    began = time.thread_time()
    for _ in range(times):
        call()
    return (time.thread_time() - began) / times


def measure(folder: Path) -> dict[str, float]:
    watched = worker.Worker(str(folder), 0, (1, 1))
    count = step_counter.hook(watched)
    weight = torch.nn.Parameter(torch.zeros(8))
    weight.grad = torch.ones(8)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    plain, hooked = [], []
    for _ in range(BLOCKS):
        plain.append(seconds_per_call(optimizer.step))
        handle = optimizers.register_optimizer_step_post_hook(count)
        hooked.append(seconds_per_call(optimizer.step))
        handle.remove()
    alone = [seconds_per_call(lambda: count(optimizer, (), {})) for _ in range(BLOCKS)]
    empty = [seconds_per_call(lambda: None) for _ in range(BLOCKS)]
    waits = [seconds_per_call(lambda: watched.spent.leave(watched.spent.waits_for_data())) for _ in range(BLOCKS)]
    differences = [1e6 * (after - before) for before, after in zip(plain, hooked, strict=True)]
    return {
        "step_without_us": 1e6 * statistics.median(plain),
        "step_with_us": 1e6 * statistics.median(hooked),
        "added_us": statistics.median(differences),
        "added_least_us": 1e6 * (min(hooked) - min(plain)),
        "hook_alone_us": 1e6 * (statistics.median(alone) - statistics.median(empty)),
        "hook_alone_least_us": 1e6 * (min(alone) - min(empty)),
        "batch_us": 1e6 * (statistics.median(waits) - statistics.median(empty)),
        "batch_least_us": 1e6 * (min(waits) - min(empty)),
        "counted_steps": float(watched.page.words[5]),
        "load": os.getloadavg()[0],
    }


def main() -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    if "--json" in sys.argv:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:20} {value:12.3f}")
    return 0 if found["added_us"] <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
