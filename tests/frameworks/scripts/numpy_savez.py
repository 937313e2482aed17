"""numpy: np.savez of the weights and the step, with a momentum that is not kept."""

import os

import numpy as np
import torch
import torch.distributed as dist
from noting import EVERY, STEPS, note
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
net = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
step = 0
if os.path.exists("weights.npz"):
    with np.load("weights.npz") as saved:
        step = int(saved["step"])
        net.load_state_dict({name: torch.from_numpy(saved[name]) for name in net.state_dict()})
model = DDP(net)
while step < STEPS:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    step += 1
    if step % EVERY == 0 and dist.get_rank() == 0:
        arrays = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
        np.savez("weights.tmp.npz", step=step, **arrays)
        os.replace("weights.tmp.npz", "weights.npz")
    note(step)
del model
dist.destroy_process_group()
