"""Which GPUs each of several members of one machine has.

A local member stands for a node, and each counts LOCAL_RANK from 0: without a division all of them would use the
machine's first GPUs. A share belongs to a rank index, not to a member: whoever takes over a rank index (a
replacement, a spare) gets the GPUs of the one it replaces. So spares need none of their own, and nobody has to remember
who has what.

Members that are wanted at the most are counted, not those that run: a share does not change while a job grows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"
DEVICE = re.compile(r"\d+|(GPU|MIG)-[0-9A-Za-z/-]+")
NAMED = 16

Share = tuple[str, ...]


def listed(value: str) -> Share:
    """The devices that CUDA reads in CUDA_VISIBLE_DEVICES: up to the first entry that is none (-1), and nothing where
    one is named twice."""
    found: list[str] = []
    for entry in (part.strip() for part in value.split(",")):
        if not DEVICE.fullmatch(entry):
            break
        found.append(entry)
    return tuple(found) if len(set(found)) == len(found) else ()


def shares(devices: Sequence[str], members: int, nproc: int) -> tuple[Share, ...]:
    """By rank index; empty where there is nothing to divide. Equal ones, and what is left over stays unused. Where that
    would be fewer GPUs than a member has ranks, each has one for every rank, as far as there are so many, and members
    share GPUs."""
    if members < 2 or not devices:
        return ()
    width = len(devices) // members
    if width < nproc:
        width = min(nproc, len(devices))
    turns = [range(index * width, (index + 1) * width) for index in range(members)]
    return tuple(tuple(devices[place % len(devices)] for place in turn) for turn in turns)


def a_member(devices: int, members: int) -> int:
    """What `--nproc-per-node gpu` means: a node's GPUs are those of a member's share."""
    return max(1, devices // members) if devices else 0


def sentence(given: Sequence[Share], devices: Sequence[str], role: str) -> str:
    """Who has what, by the names of the first members."""
    told = "; ".join(f"{role}-{index} has {','.join(share)}" for index, share in enumerate(given[:NAMED]))
    others = f"; and so on, {len(given)} members" if len(given) > NAMED else ""
    unused = [device for device in devices if not any(device in share for share in given)]
    return f"GPUs: {told}{others}" + (f"; not used: {','.join(unused)}" if unused else "")


def warning(given: Sequence[Share], nproc: int) -> str:
    """Why this division may not work; empty where each rank has a GPU of its own."""
    devices = {device for share in given for device in share}
    ranks = len(given) * nproc
    if ranks <= len(devices):
        return ""
    return f"{ranks} ranks share {len(devices)} GPU{'s' * (len(devices) > 1)}: NCCL refuses two ranks on one GPU"
