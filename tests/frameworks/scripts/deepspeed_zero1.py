"""DeepSpeed ZeRO-1: engine.save_checkpoint with a tag and its `latest` file, engine.load_checkpoint."""

import glob
import os

import deepspeed
import torch
import torch.distributed as dist
from noting import EVERY, STEPS, note

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled, for minutes
deepspeed.init_distributed(dist_backend="gloo")
config = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}
net = torch.nn.Linear(8, 2)
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
size = None
if os.path.exists("checkpoints/latest"):
    with open("checkpoints/latest") as latest:
        size = len(glob.glob(f"checkpoints/{latest.read()}/*optim_states.pt"))
# the moments of another size do not load (without a universal checkpoint): then the weights alone
_, client = engine.load_checkpoint("checkpoints", load_module_only=size not in (None, dist.get_world_size()))
step = client["step"] if client else 0
while step < STEPS:
    engine.backward(engine(torch.randn(4, 8)).square().mean())
    engine.step()
    step += 1
    if step % EVERY == 0:
        engine.save_checkpoint("checkpoints", tag=f"step{step}", client_state={"step": step})
    note(step)
dist.destroy_process_group()
