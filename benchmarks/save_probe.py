"""A script that does little but save: one step, all ranks together, then a plain torch.save by each to its own file.

It reports on a datagram socket when a save begins and when it has ended, so that the benchmark can kill it in between.
"""

import argparse
import json
import os
import socket
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--listener", required=True, help="path of the datagram socket")
    parser.add_argument("--mib", type=int, default=8, help="size of a save")
    args = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.connect(args.listener)

    def tell(what, step, seconds=0.0):
        listener.send(json.dumps([what, rank, os.getpid(), step, seconds]).encode())

    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = time.time_ns() // 1_000_000  # grows over restarts without a file to be read
    while True:
        step += 1
        net(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        state = {"step": step, "data": torch.full((args.mib, 2**18), float(step % 1000))}
        if dist.is_initialized():
            dist.barrier()
        tell("begin", step)
        began = time.perf_counter()
        torch.save(state, args.folder / f"rank-{rank}.pt")
        tell("end", step, time.perf_counter() - began)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
