"""DDP over NCCL on one GPU, with so much of its memory that two generations cannot have theirs at once."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEP = 0.05


def main(gib: float, folder: Path) -> None:
    begun = time.time()
    dist.init_process_group("nccl")
    torch.cuda.set_device(0)
    ballast = torch.empty(int(gib * 2**30), dtype=torch.uint8, device="cuda").fill_(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(256, 256).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    checkpoint, step = folder / "checkpoint.pt", 0
    if checkpoint.exists():
        kept = torch.load(checkpoint, map_location="cuda")
        model.load_state_dict(kept["model"])
        step = kept["step"]
    with (folder / f"steps-{os.getpid()}").open("w", buffering=1) as log:
        log.write(json.dumps({"pid": os.getpid(), "begun": begun, "bytes": ballast.numel()}) + "\n")
        while True:
            step += 1
            generator = torch.Generator("cuda").manual_seed(step)
            loss = model(torch.randn(64, 256, device="cuda", generator=generator)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.write(json.dumps({"step": step, "time": time.time(), "loss": loss.item()}) + "\n")
            if step % 10 == 0:
                torch.save({"model": model.state_dict(), "step": step}, checkpoint)
            time.sleep(STEP)


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]))
