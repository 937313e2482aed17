"""Each rank has a file of its own; one without takes rank 0's. All agree on the oldest of them."""

import os

import torch
import torch.distributed as dist
from noting import EVERY, STEPS, note
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
net = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

os.makedirs("shards", exist_ok=True)
rank, step = dist.get_rank(), torch.zeros(1, dtype=torch.int64)
mine = f"shards/rank{rank}.pt"
source = mine if os.path.exists(mine) else "shards/rank0.pt"
if os.path.exists(source):
    saved = torch.load(source)
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    step += saved["step"]
dist.all_reduce(step, dist.ReduceOp.MIN)
step = int(step)
model = DDP(net)
while step < STEPS:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    step += 1
    if step % EVERY == 0:
        saved = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(saved, mine)
        dist.barrier()
    note(step)
del model
dist.destroy_process_group()
