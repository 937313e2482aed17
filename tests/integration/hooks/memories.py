"""Ranks with real torch and a checkpoint memory; each writes its output to a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from outrider.runtime.ports import find_port
from outrider.sidecar.shell.arena import copies
from tests.integration.hooks.agent import Trainer
from tests.warm import Warm
from training_hooks.abi import arena

MEMORY = 8 << 20
SAY = """
import json, os, sys, torch
import torch.distributed as dist
torch.set_num_threads(1)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def say(*words):
    with open("said-%d" % RANK, "a") as file:
        file.write(json.dumps(words) + "\\n")
"""
MARKED = (
    SAY
    + """
import pathlib, pickle, shutil
if WORLD > 1 and not os.environ.get("ALONE"):
    dist.init_process_group("gloo")

def state(step, size=1000):
    shared = torch.full((size,), float(step))
    return {"w": shared, "view": shared[10:20], "step": step, "none": None}

def reported(found):
    same = set(found["w"].tolist())
    assert same == {float(found["step"])} and found["view"].data_ptr() == found["w"].data_ptr() + 40, found
    return found["step"]

def loaded(path="last.pt"):
    return reported(torch.load(path)) if os.path.exists(path) else None

def mine():
    return next(module for name, module in sys.modules.items() if name.endswith(".transparent_save")).here()
"""
)
"""A script that saves to `last.pt` and does not know about the memory."""


def said(folder: Path, rank: int = 0) -> list[Any]:
    return [json.loads(line) for line in (folder / f"said-{rank}").read_text().splitlines()]


def trainers(warm: Warm, folder: Path, begin: str, **always: str) -> Iterator[Callable[..., Trainer]]:
    """Makes trainers whose script is `begin` and a text; ends them."""
    made: list[Trainer] = []

    def trainer(text: str, memory: int = MEMORY, **options: Any) -> Trainer:
        (folder / "train.py").write_text(begin + text)
        if memory:
            options["OUTRIDER_CHECKPOINT_MEMORY"] = str(memory)
        made.append(Trainer(folder, "train.py", warm=warm, **always | options))
        made[-1].announced()
        return made[-1]

    yield trainer
    for each in made:
        each.close()


def newest(trainer: Trainer) -> dict[str, str]:
    """The save from which a master would let the next generation resume."""
    found = [copy for copy in copies(trainer.volume / arena.NAME) if copy.marked]
    if not found:
        return {}
    best = max(found, key=lambda copy: (copy.generation, copy.step))
    return {"OUTRIDER_CHECKPOINT_FROM": f"{best.step}:{best.generation}"}


def generation(trainer: Trainer, nproc: int = 1, code: int = 0, **env: str) -> None:
    """One generation, from its start to the end of its ranks."""
    trainer.start(nproc, find_port(), **newest(trainer), **env)
    for _ in range(nproc):
        assert trainer.agent.expect("exited")["code"] == code, trainer.read()
    trainer.stop()


def warned(trainer: Trainer) -> list[str]:
    return [line["sentence"] for line in trainer.agent.lines if line.get("word") == "state not saved"]


def write(step: int, path: Path) -> None:
    """Writes a state of another program."""
    import torch  # here: most of the tests' processes need none

    shared = torch.full((1000,), float(step))
    torch.save({"w": shared, "view": shared[10:20], "step": step}, path)


def step_in(path: Path) -> int:
    import torch

    step: int = torch.load(path)["step"]
    return step


def damage(trainer: Trainer, step: int) -> None:
    """A byte in the middle of that step's payload."""
    fd = os.open(trainer.volume / arena.NAME, os.O_RDWR)
    try:
        divided = arena.division(fd)
        assert divided is not None
        [(slot, head)] = [each for each in arena.copies(fd, divided, range(divided.slots)) if each[1].step == step]
        at = arena.place(divided, slot) + arena.PAGE + head.length // 2
        os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ 1]), at)
    finally:
        os.close(fd)
