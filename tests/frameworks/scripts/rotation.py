"""A file a step, of which the newest two are kept."""

import glob
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
found = sorted(glob.glob("ckpt/epoch_*.pth"), key=os.path.getmtime)
if found:
    saved = torch.load(found[-1])
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
        torch.save(saved, f"ckpt/epoch_{step}.pth")
        for old in sorted(glob.glob("ckpt/epoch_*.pth"), key=os.path.getmtime)[:-2]:
            os.remove(old)
    note(step)
del model
dist.destroy_process_group()
