"""Divides the GPUs of one machine among its local members.

A local member stands for a node, and each counts LOCAL_RANK from 0: without a division all of them would use the
machine's first GPUs. A share belongs to a rank index, not to a member: a member that takes over a rank index (a
replacement, a spare) gets the GPUs of the member that it replaces. So spares need no GPUs of their own, and no
assignment has to be stored.

The division counts the maximum number of members, not those that run: a share does not change while a job grows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"
DEVICE = re.compile(r"\d+|(GPU|MIG)-[0-9A-Za-z/-]+")
NAMED = 16
"""The most members that a sentence names."""

Share = tuple[str, ...]


def listed(value: str) -> Share:
    """The devices in a value of CUDA_VISIBLE_DEVICES, as CUDA reads it.

    CUDA stops at the first entry that is not a device (-1), and sees no device at all if one is named twice.
    """
    found: list[str] = []
    for entry in (part.strip() for part in value.split(",")):
        if not DEVICE.fullmatch(entry):
            break
        found.append(entry)
    return tuple(found) if len(set(found)) == len(found) else ()


def shares(devices: Sequence[str], members: int, nproc: int) -> tuple[Share, ...]:
    """The share of each rank index; empty if there is nothing to divide.

    Shares are equal, and what is left over stays unused. If an equal share has fewer GPUs than a member has ranks
    (`nproc`), each share has one GPU per rank, or all GPUs if there are fewer, and members share GPUs.
    """
    if members < 2 or not devices:
        return ()
    width = len(devices) // members
    if width < nproc:
        width = min(nproc, len(devices))
    spans = [range(index * width, (index + 1) * width) for index in range(members)]
    return tuple(tuple(devices[number % len(devices)] for number in span) for span in spans)


def a_member(devices: int, members: int) -> int:
    """The ranks per member that `--nproc-per-node gpu` means: as many as the GPUs of a member's share, at least 1."""
    return max(1, devices // members) if devices else 0


def sentence(given: Sequence[Share], devices: Sequence[str], role: str) -> str:
    """A sentence with the share of each of the first `NAMED` members."""
    named = "; ".join(f"{role}-{index} has {','.join(share)}" for index, share in enumerate(given[:NAMED]))
    others = f"; and so on, {len(given)} members" if len(given) > NAMED else ""
    unused = [device for device in devices if not any(device in share for share in given)]
    return f"GPUs: {named}{others}" + (f"; not used: {','.join(unused)}" if unused else "")


def warning(given: Sequence[Share], nproc: int) -> str:
    """Why this division may not work; empty if each rank has a GPU of its own."""
    devices = {device for share in given for device in share}
    ranks = len(given) * nproc
    if ranks <= len(devices):
        return ""
    return f"{ranks} ranks share {len(devices)} GPU{'s' * (len(devices) > 1)}: NCCL refuses two ranks on one GPU"
