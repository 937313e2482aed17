"""What a data position costs a training: a batch of a real DataLoader with and without it, and a torch.save with and
without the file beside it.

Both kinds take turns in short blocks, so that the machine's mood falls on both. A batch is judged by the thread's own
processor time, a save by the clock; the median of the differences of neighbours, and the difference of the least of
either kind, which is what is left when nothing else runs.
Run: python benchmarks/data.py [--json]
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
from typing import Any

import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, DistributedSampler
from torch.utils.data import dataloader as loaders_of_torch
from torch.utils.data import distributed as samplers_of_torch

from training_hooks.checkpoints import save_hooks
from training_hooks.data import loader_hooks, position
from training_hooks.rank import worker
from training_hooks.telemetry import step_counter

BLOCK, BLOCKS, SAVES = 50, 400, 300
STEP_LIMIT, SAVE_LIMIT = 0.5, 1.0
"""Microseconds a batch, milliseconds a save."""


def batches(deliver: Callable[[Any], Any], loader: DataLoader[Any], each: Callable[[], object]) -> list[float]:
    """Microseconds of processor time a batch, block by block, for as long as a pass lasts."""
    iterator, found = iter(loader), []
    for _ in range(len(loader) // BLOCK):
        took = 0.0
        for _ in range(BLOCK):
            began = time.thread_time_ns()
            deliver(iterator)
            took += time.thread_time_ns() - began
            each()
        found.append(took / BLOCK / 1000)
    return found


def of_batches(book: position.Book, count: Callable[..., None]) -> dict[str, float]:
    kind = loaders_of_torch._BaseDataLoaderIter
    wrapped = kind.__next__
    plain = wrapped.__wrapped__
    values = list(range(BLOCK * 10))
    loader = DataLoader(values, batch_size=1, sampler=DistributedSampler(values, 1, 0))
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step() -> None:
        count(optimizer, (), {})

    without, with_it = [], []
    for _ in range(BLOCKS // 10):
        without += batches(plain, loader, step)
        with_it += batches(wrapped, loader, step)
    differences = [after - before for before, after in zip(without, with_it, strict=True)]
    return {
        "batch_without_us": statistics.median(without),
        "batch_added_us": statistics.median(differences),
        "batch_added_least_us": min(with_it) - min(without),
        "passes_recorded": float(len(book.samplers.newest)),
    }


def of_saves(folder: Path, watched: worker.Worker) -> dict[str, float]:
    values = list(range(1000))
    loader = DataLoader(values, batch_size=4, sampler=DistributedSampler(values, 1, 0))
    reading = iter(loader)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    count = step_counter.hook(watched)
    state = {"weights": torch.zeros(1000)}
    without, with_it, alone = [], [], []
    book = watched.data
    for number in range(SAVES):
        if number % 200 == 0:
            reading = iter(loader)
        next(reading)
        count(optimizer, (), {})
        for times, kept in ((without, None), (with_it, book)):
            watched.data = kept
            began = time.perf_counter()
            torch.save(state, folder / "model.pt")
            times.append(1e3 * (time.perf_counter() - began))
        began = time.perf_counter()
        book.saved(str(folder / "model.pt"), str(folder / "model.pt"))
        alone.append(1e3 * (time.perf_counter() - began))
    written = json.loads((folder / ".model.pt.position.json").read_text())
    differences = [after - before for before, after in zip(without, with_it, strict=True)]
    return {
        "save_without_ms": statistics.median(without),
        "save_added_ms": statistics.median(differences),
        "position_alone_ms": statistics.median(alone),
        "position_alone_worst_ms": max(alone),
        "saves_in_the_file": float(len(written["body"]["saves"])),
    }


def measure(folder: Path) -> dict[str, float]:
    watched = worker.Worker(str(folder), 0, (1, 1))
    warnings: list[object] = []
    environment = {"OUTRIDER_ELASTIC_DATA": "1", "OUTRIDER_GENERATION": "1.1"}
    book = position.Book(step_counter.counter(watched.page), lambda *each: warnings.append(each), environment, None)
    watched.data = book
    loader_hooks.wrap_samplers(lambda: watched.data, samplers_of_torch)
    loader_hooks.wrap_loaders(lambda: watched.data, loaders_of_torch)
    step_counter.notice_optimizers(optimizers)
    save_hooks.wrap_torch(lambda: watched, torch)
    watched.page.source = 1
    found = of_batches(book, step_counter.hook(watched)) | of_saves(folder, watched)
    assert not warnings, warnings
    return found | {"load": os.getloadavg()[0]}


def main() -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    if "--json" in sys.argv:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:24} {value:12.3f}")
    return 0 if found["batch_added_us"] <= STEP_LIMIT and found["save_added_ms"] <= SAVE_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
