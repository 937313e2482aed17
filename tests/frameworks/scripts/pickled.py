"""pickle by hand, as code older than torch.save's formats has it."""

import os
import pickle

import torch
import torch.distributed as dist
from noting import EVERY, STEPS, note
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
net = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
step = 0
if os.path.exists("checkpoint.pkl"):
    with open("checkpoint.pkl", "rb") as f:
        state = pickle.load(f)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
model = DDP(net)
while step < STEPS:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    step += 1
    if step % EVERY == 0 and dist.get_rank() == 0:
        with open("checkpoint.pkl.tmp", "wb") as f:
            pickle.dump({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f)
        os.replace("checkpoint.pkl.tmp", "checkpoint.pkl")
    note(step)
del model
dist.destroy_process_group()
