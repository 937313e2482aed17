"""An ordinary DDP script that leaves a trace of every step, so that any launcher can be measured from the outside.

It resumes from its own checkpoint as scripts do. Each rank appends one JSON line a step to a file of its own process;
the data of a step depends on the step and the rank alone, so a repeated step must repeat its loss.
"""

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


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trace", type=Path, required=True, help="folder for the traces")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--checkpoint-every", type=int, default=25)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--step-seconds", type=float, default=0.01, help="each step sleeps this long")
    return parser.parse_args()


def make_batch(step, rank, teacher):
    generator = torch.Generator().manual_seed(step * 1009 + rank)
    x = torch.randn(16, 32, generator=generator)
    return x, torch.tanh(x @ teacher)


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    teacher = torch.randn(32, 4) / 6
    net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loaded = 0
    if args.checkpoint.exists():
        saved = torch.load(args.checkpoint)
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loaded = saved["step"]

    run = torch.tensor([time.time_ns()])
    dist.broadcast(run, 0)
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    trace = (args.trace / f"{os.getpid()}-{time.time_ns()}.jsonl").open("a", buffering=1)
    about = {"rank": rank, "world": world, "pid": os.getpid(), "restart_count": restarts, "loaded": loaded}
    about["run"] = run.item()  # the same in all ranks that began together
    for step in range(loaded + 1, args.steps + 1):
        x, y = make_batch(step, rank, teacher)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        time.sleep(args.step_seconds)
        trace.write(json.dumps({"time": time.time(), "step": step, "loss": loss.item(), **about}) + "\n")
        if rank == 0 and step % args.checkpoint_every == 0:
            torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, args.checkpoint)
    del model  # before the group: freed after it, DDP can wait forever for gloo's threads (torch 2.13)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
