"""A script for the tests that run torch."""

from __future__ import annotations

DDP = """
import os, sys, time
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = (torch.randn(1).item(), float(np.random.rand()), torch.get_num_threads())
    for step in range(100000):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()
        if step == 0:
            sys.stdout.write("SEEN %r %r %r\\n" % seen)
            sys.stdout.flush()
        BODY
if __name__ == "__main__":
    main()
"""
