"""One rank that saves and loads a state again and again, each way in turn, and prints the seconds as JSON.

Run by `memory_checkpoints.py`, which gives it the environment of a rank; with `dlrover` as first argument in an
environment of its own. A restore ends when the state is in the model again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
Seconds = dict[str, list[float]]


def timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def filled(target: Tensors, source: Tensors) -> None:
    with torch.no_grad():
        for name, tensor in target.items():
            tensor.copy_(source[name])


def ours(state: Tensors, rounds: int, disk: Path) -> Seconds:
    """The plain copies, the files of torch's and our memory take turns."""
    from training_hooks.public import checkpoint

    other = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    loaded: list[Tensors] = []

    def on_storage() -> None:
        with disk.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

    def round_of(step: int) -> dict[str, float]:
        found = {"clone": timed(lambda: {name: tensor.clone() for name, tensor in state.items()})}
        found["memcpy"] = timed(lambda: filled(other, state))
        found["save"] = timed(lambda: checkpoint.save(state, step))
        found["sealed"] = timed(checkpoint.wait)
        found["load"] = timed(lambda: loaded.append(checkpoint.load()[0]))
        found["restore"] = found["load"] + timed(lambda: filled(other, loaded.pop()))
        assert all((tensor == step).all() for tensor in other.values()), "what it loads is what was saved"
        found["torch.save"] = timed(on_storage)
        found["torch.load"] = timed(lambda: filled(other, torch.load(disk)))
        return found

    return in_turn(state, rounds, round_of)


def marked(state: Tensors, rounds: int, disk: Path) -> Seconds:
    """torch.save and torch.load of a marked path, beside those of another one, which are whole and with fsync too."""
    other = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    plain = disk.with_name("plain.pt")
    loaded: list[Tensors] = []
    torch.save(state, disk)  # the first one is ordinary

    def round_of(step: int) -> dict[str, float]:
        found = {"clone": timed(lambda: {name: tensor.clone() for name, tensor in state.items()})}
        found["memcpy"] = timed(lambda: filled(other, state))
        found["save"] = timed(lambda: torch.save(state, disk))
        hooks = next(module for name, module in sys.modules.items() if name.endswith(".marked"))
        mine = hooks.here()
        found["stored"] = timed(mine.settle)
        hooks._mine = None  # as in a process that has not saved: it looks at the checksum
        found["load"] = timed(lambda: loaded.append(torch.load(disk)))
        hooks._mine = mine  # its pages are touched
        found["restore"] = found["load"] + timed(lambda: filled(other, loaded.pop()))
        assert all((tensor == step).all() for tensor in other.values()), "what it loads is what was saved"
        found["torch.save"] = timed(lambda: torch.save(state, plain))
        found["torch.load"] = timed(lambda: filled(other, torch.load(plain)))
        return found

    return in_turn(state, rounds, round_of)


def dlrovers(state: Tensors, rounds: int, folder: Path) -> Seconds:
    from dlrover.trainer.torch.flash_checkpoint.checkpointer import StorageType
    from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer

    checkpointer = DdpCheckpointer(str(folder))
    other = {name: torch.zeros_like(tensor) for name, tensor in state.items()}

    def round_of(step: int) -> dict[str, float]:
        found = {"clone": timed(lambda: {name: tensor.clone() for name, tensor in state.items()})}
        found["save"] = timed(lambda: checkpointer.save_checkpoint(step, state, storage_type=StorageType.MEMORY))
        found["restore"] = timed(lambda: filled(other, checkpointer.load_checkpoint()))
        assert all((tensor == step).all() for tensor in other.values()), "what it loads is what was saved"
        return found

    return in_turn(state, rounds, round_of)


def in_turn(state: Tensors, rounds: int, round_of: Callable[[int], dict[str, float]]) -> Seconds:
    """The seconds of all rounds but the first, which touches the memory's pages for the first time."""
    found = []
    for step in range(1, rounds + 2):
        for tensor in state.values():
            tensor.fill_(step)
        found.append(round_of(step))
    return {name: [each[name] for each in found[1:]] for name in found[0]}


def main() -> None:
    who, mebibytes, rounds, place = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    state = {f"layer{n}": torch.zeros((1 << 20) * 4) for n in range(mebibytes // 16)}
    found = {"dlrover": dlrovers, "marked": marked, "ours": ours}[who](state, rounds, place)
    print("FOUND " + json.dumps(found), flush=True)
    os._exit(0)  # a peer's saver process may not end by itself


if __name__ == "__main__":
    main()
