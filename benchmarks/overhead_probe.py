"""A training loop of equal steps of pure computation that keeps how long each took, and writes it down at its end."""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


def train(steps, width):
    """The seconds of each step; the first fifth warms up and is left out."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    model = DistributedDataParallel(net) if dist.is_initialized() else net
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, width)
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        times.append(time.perf_counter() - began)
    return times[steps // 5 :]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--width", type=int, required=True, help="of the layers: what a step costs")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    times = train(args.steps, args.width)
    if not dist.is_initialized() or dist.get_rank() == 0:
        partial = args.out.with_suffix(".partial")
        partial.write_text(json.dumps(times))
        partial.rename(args.out)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
