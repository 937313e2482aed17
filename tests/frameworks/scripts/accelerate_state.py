"""accelerate's examples: save_state to a folder a step, --resume_from_checkpoint latest takes the newest."""

import os
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from noting import EVERY, STEPS, note
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
set_seed(42)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(800, 8)), batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
overall_step, output_dir = 0, "output"
os.makedirs(output_dir, exist_ok=True)
if "--resume_from_checkpoint" in sys.argv:
    folders = [entry.path for entry in os.scandir(output_dir) if entry.is_dir() and entry.name.startswith("step_")]
    if folders:
        newest = max(folders, key=os.path.getctime)
        accelerator.print(f"Resumed from checkpoint: {newest}")
        accelerator.load_state(newest)
        overall_step = int(os.path.basename(newest).removeprefix("step_"))
active = accelerator.skip_first_batches(loader, overall_step % len(loader))
while overall_step < STEPS:
    for (x,) in active:
        loss = model(x).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        overall_step += 1
        if overall_step % EVERY == 0:
            accelerator.save_state(os.path.join(output_dir, f"step_{overall_step}"))
        note(overall_step)
        if overall_step >= STEPS:
            break
    active = loader
accelerator.end_training()
