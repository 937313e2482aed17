"""A folder a step, and a file `latest` that names the newest."""

import os

import torch
import torch.distributed as dist
from noting import EVERY, STEPS, note
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
net = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

step = 0
if os.path.exists("ckpt/latest"):
    with open("ckpt/latest") as f:
        folder = os.path.join("ckpt", f.read().strip())
    net.load_state_dict(torch.load(os.path.join(folder, "model.pt")))
    optimizer.load_state_dict(torch.load(os.path.join(folder, "optimizer.pt")))
    step = int(folder.rpartition("-")[2])
model = DDP(net)
while step < STEPS:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    step += 1
    if step % EVERY == 0 and dist.get_rank() == 0:
        folder = f"ckpt/step-{step}"
        os.makedirs(folder, exist_ok=True)
        torch.save(net.state_dict(), os.path.join(folder, "model.pt"))
        torch.save(optimizer.state_dict(), os.path.join(folder, "optimizer.pt"))
        with open("ckpt/latest.tmp", "w") as f:
            f.write(f"step-{step}")
        os.replace("ckpt/latest.tmp", "ckpt/latest")
    note(step)
del model
dist.destroy_process_group()
