"""A file a step, and a symbolic link to the newest."""

import os

import torch
import torch.distributed as dist
from noting import EVERY, STEPS, note
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
net = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

os.makedirs("ckpt", exist_ok=True)
step = 0
if os.path.exists("ckpt/latest.pt"):
    saved = torch.load("ckpt/latest.pt")
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
model = DDP(net)
while step < STEPS:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    step += 1
    if step % EVERY == 0 and dist.get_rank() == 0:
        saved = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(saved, f"ckpt/step{step:07d}.pt")
        if os.path.lexists("ckpt/latest.pt.new"):
            os.unlink("ckpt/latest.pt.new")
        os.symlink(f"step{step:07d}.pt", "ckpt/latest.pt.new")
        os.replace("ckpt/latest.pt.new", "ckpt/latest.pt")
    note(step)
del model
dist.destroy_process_group()
