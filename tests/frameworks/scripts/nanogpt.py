"""nanoGPT: rank 0 saves `out/ckpt.pt` with model, optimizer and iter_num; --init_from=scratch, or resume."""

import os
import sys

import torch
import torch.distributed as dist
from noting import EVERY, STEPS, note
from torch.nn.parallel import DistributedDataParallel as DDP

init_from, out_dir = "scratch", "out"
for argument in sys.argv[1:]:
    if argument.startswith("--init_from="):
        init_from = argument.split("=")[1]
dist.init_process_group("gloo")
master_process = dist.get_rank() == 0
torch.manual_seed(1337)
model = torch.nn.Linear(8, 2)
iter_num, ckpt_path = 0, os.path.join(out_dir, "ckpt.pt")
checkpoint = None
if init_from == "resume" and os.path.exists(ckpt_path):
    checkpoint = torch.load(ckpt_path, map_location="cpu")
    model.load_state_dict({k.removeprefix("_orig_mod."): v for k, v in checkpoint["model"].items()})
    iter_num = checkpoint["iter_num"]
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
if checkpoint is not None:
    optimizer.load_state_dict(checkpoint["optimizer"])
checkpoint = None  # free up memory
os.makedirs(out_dir, exist_ok=True)
model = DDP(model)
raw_model = model.module
while iter_num < STEPS:
    if iter_num % EVERY == 0 and iter_num > 0 and master_process:
        raw_model.eval()
        with torch.no_grad():
            raw_model(torch.randn(4, 8))
        raw_model.train()
        checkpoint = {"model": raw_model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num}
        torch.save(checkpoint, ckpt_path)
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
    note(iter_num)
del model
dist.destroy_process_group()
