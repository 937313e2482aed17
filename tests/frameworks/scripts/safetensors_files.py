"""safetensors: the weights in one file with the step in its metadata, the optimizer in another one."""

import os

import torch
import torch.distributed as dist
from noting import EVERY, STEPS, note
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
net = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

step = 0
if os.path.exists("model.safetensors"):
    net.load_state_dict(load_file("model.safetensors"))
    optimizer.load_state_dict(torch.load("optimizer.bin"))
    with safe_open("model.safetensors", framework="pt") as file:
        step = int(file.metadata()["step"])
model = DDP(net)
while step < STEPS:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    step += 1
    if step % EVERY == 0 and dist.get_rank() == 0:
        save_file(net.state_dict(), "model.safetensors", metadata={"step": str(step)})
        torch.save(optimizer.state_dict(), "optimizer.bin")
    note(step)
del model
dist.destroy_process_group()
