"""With real torch the slow rank stands out, although all steps are equally long.

It sleeps 250 ms instead of loading its data, so its gap is at least that long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.runtime.ports import find_port
from outrider.sidecar.shell.step_windows import WindowReader
from outrider.wire.ids import Generation
from outrider.wire.messages.report import OwnTime
from tests.integration.hooks.agent import Trainer, wait_until
from tests.tiers import witnesses
from tests.warm import Warm

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("warm")]
Make = Callable[..., Trainer]
SLOW = 0.25
PATIENCE = 300.0

SCRIPT = """
import sys, time
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

def batch_norm(rank, world):
    return DDP(nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.Linear(32, 4))), None

def fsdp(rank, world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (world,))
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 4))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh), None

def two_groups(rank, world):
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    return DDP(nn.Linear(32, 4)), groups[rank // 2]

def two_optimizers(rank, world):
    return DDP(nn.Linear(32, 4)), None

def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model, group = globals()[sys.argv[1]](rank, dist.get_world_size())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for _ in range(1 + (sys.argv[1] == "two_optimizers"))]
    while True:
        if rank == int(sys.argv[2]):
            time.sleep(SECONDS)
        batch = torch.randn(16, 32)
        for optimizer in optimizers:
            optimizer.zero_grad()
            if group is not None:
                dist.all_reduce(batch, group=group)
            model(batch).sum().backward()
            optimizer.step()

main()
""".replace("SECONDS", str(SLOW))


@pytest.fixture
def make(warm: Warm, tmp_path: Path) -> Iterator[Make]:
    made: list[Trainer] = []

    def trainer(*arguments: str, script: str = SCRIPT, **options: Any) -> Trainer:
        (tmp_path / "train.py").write_text(script)
        made.append(Trainer(tmp_path, "train.py", *arguments, warm=warm, **options))
        return made[-1]

    yield trainer
    for each in made:
        each.close()


def common_window(trainer: Trainer, nproc: int) -> list[OwnTime]:
    """The first window that all ranks have, by rank."""
    reader, seen = WindowReader(trainer.volume), dict[int, list[OwnTime]]()

    def is_there() -> bool:
        for window in reader.read(Generation(1, 1), tuple(range(nproc))):
            seen.setdefault(window.first_step, []).append(window)
        return any(len(found) == nproc for found in seen.values())

    wait_until(is_there, f"a window that all ranks have\n{trainer.read()}", PATIENCE)
    return sorted(next(found for found in seen.values() if len(found) == nproc), key=lambda own: own.local_rank)


@pytest.mark.parametrize(
    ("kind", "nproc", "slow"),
    witnesses(
        [("batch_norm", 2, 0), ("fsdp", 2, 1), ("two_groups", 4, 3), ("two_optimizers", 2, 1)],
        ("fsdp", 2, 1),
    ),
)
def test_the_slow_rank_stands_out_and_those_that_wait_for_it_do_not(
    make: Make, kind: str, nproc: int, slow: int
) -> None:
    trainer = make(kind, str(slow), OUTRIDER_NPROC=str(nproc))
    trainer.announced()
    trainer.start(nproc, find_port())
    windows = common_window(trainer, nproc)
    assert all(own.source == "recorder and cpu" and own.step_seconds >= SLOW for own in windows)
    assert len({own.shape for own in windows}) == 1
    assert windows[slow].gap >= SLOW
    assert all(max(own.gap, own.busy) < windows[slow].gap for own in windows if own.local_rank != slow)
    trainer.stop()


LOADER = """
import time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 1000000
    def __getitem__(self, index):
        time.sleep(SECONDS)
        return torch.randn(32)

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Slow(), batch_size=1, num_workers=1, prefetch_factor=2):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
""".replace("SECONDS", str(SLOW))


def test_waiting_for_a_data_loader_is_reported_as_such(make: Make) -> None:
    trainer = make(script=LOADER)
    trainer.announced()
    trainer.start(1, find_port())
    (window,) = common_window(trainer, 1)
    assert window.waited > 0.5 * window.gap
    assert window.busy >= window.waited
    trainer.stop()


def test_the_page_is_never_newer_than_now(make: Make) -> None:
    trainer = make("batch_norm", "0", OUTRIDER_NPROC="2")
    trainer.announced()
    began = time.monotonic()
    trainer.start(2, find_port())
    for window in common_window(trainer, 2):
        assert window.steps * window.step_seconds <= time.monotonic() - began
        assert max(window.cpu, window.delayed, window.gap) <= time.monotonic() - began
    trainer.stop()
