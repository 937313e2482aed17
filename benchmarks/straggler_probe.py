"""The training of the straggler benchmarks: DDP with a BatchNorm on gloo, a DataLoader with a worker process, some
milliseconds of processor time in data and in forward, and a pause like that for a device. It trains until it is ended.

`hurt-MEMBER` in its folder has one rank do more: `{"data": 0.05}` in its DataLoader's worker, `computing` or `waiting`
in its own step, seconds each.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from measure.groups import join
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

DEVICE = 0.03
MEMBER = Path(os.environ["OUTRIDER_DIR"]).name


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=float, required=True, help="seconds of processor time, in data and in forward")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--groups", type=Path, help="of the members' cgroups")
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--validate-every", type=int, default=0)
    return parser.parse_args()


ARGUMENTS = parsed()


def more(what: str) -> float:
    """Seconds more of it that this rank is to do."""
    try:
        return float(json.loads((ARGUMENTS.folder / f"hurt-{MEMBER}").read_text()).get(what, 0.0))
    except OSError:
        return 0.0


def work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Batches(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            time.sleep(more("data"))
            yield torch.randn(32, 64)


class Working(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        work(ARGUMENTS.work)
        time.sleep(DEVICE)
        found: torch.Tensor = self.layer(batch)
        return found


def aside(step: int, model: DistributedDataParallel) -> None:
    """What rank 0 does between steps, while the others wait for it in the next."""
    if dist.get_rank():
        return
    if ARGUMENTS.save_every and step % ARGUMENTS.save_every == 0:
        torch.save([torch.zeros(1 << 18) for _ in range(20)], ARGUMENTS.folder / "model.pt")
    if ARGUMENTS.validate_every and step % ARGUMENTS.validate_every == 0:
        model.eval()
        work(0.1)
        model.train()


def main() -> None:
    torch.set_num_threads(1)
    if ARGUMENTS.groups is not None:
        join(ARGUMENTS.groups, MEMBER)  # before threads are started, which keep to its core too
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), Working()))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for step, batch in enumerate(DataLoader(Batches(), batch_size=None, num_workers=1), 1):
        work(ARGUMENTS.work + more("computing"))
        time.sleep(more("waiting"))
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        aside(step, model)


if __name__ == "__main__":
    main()
