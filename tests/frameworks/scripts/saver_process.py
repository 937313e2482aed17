"""A process of its own (multiprocessing) writes what rank 0 puts into a queue."""

import multiprocessing
import os

import torch
import torch.distributed as dist
from noting import EVERY, STEPS, note
from torch.nn.parallel import DistributedDataParallel as DDP


def save(queue):
    while (state := queue.get()) is not None:
        torch.save(state, "checkpoint.pt.tmp")
        os.replace("checkpoint.pt.tmp", "checkpoint.pt")
        queue.task_done()


queue = multiprocessing.JoinableQueue()
if os.environ["RANK"] == "0":
    multiprocessing.Process(target=save, args=(queue,), daemon=True).start()
dist.init_process_group("gloo")
net = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

step = 0
if os.path.exists("checkpoint.pt"):
    saved = torch.load("checkpoint.pt")
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
model = DDP(net)
while step < STEPS:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    step += 1
    if step % EVERY == 1:
        queue.join()  # the one before is written
    if step % EVERY == 0 and dist.get_rank() == 0:
        queue.put({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
    note(step)
del model
dist.destroy_process_group()
