"""The training that `straggler_record.py` records: DDP with a BatchNorm on gloo, work of so many milliseconds of
processor time in data and forward each, and a pause like that for a device. It trains until it is ended."""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DEVICE = 0.03


def work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Working(nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.layer, self.seconds = nn.Linear(64, 64), seconds

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        work(self.seconds)
        time.sleep(DEVICE)
        found: torch.Tensor = self.layer(batch)
        return found


def main(seconds: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), Working(seconds)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        work(seconds)
        optimizer.zero_grad()
        model(torch.randn(32, 64)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    main(float(sys.argv[1]) / 1000)
