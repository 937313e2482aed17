"""Fits a small network to random data, data parallel on CPUs, with its own code to save and resume.

torchrun --nproc-per-node 2 train.py --out out
"""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds that a step takes beside its arithmetic")
    parser.add_argument("--out", type=Path, default=Path("out"))
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    checkpoint, step = args.out / "checkpoint.pt", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        net.load_state_dict(saved["model"])
        step = saved["step"]
    if rank == 0:
        print(f"begins at step {step} on {world} processes", flush=True)

    while step < args.steps:
        inputs = torch.randn(32, 64)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(args.pause)
        step += 1
        if rank == 0 and step % 50 == 0:
            torch.save({"model": net.state_dict(), "step": step}, checkpoint)
            print(f"step {step} loss {loss.item():.4f}", flush=True)

    del model  # before the group: freed after it, DDP can wait forever for gloo's threads (torch 2.13)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
