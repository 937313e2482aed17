"""Reads the size of a job from flags in torchrun's spelling: `--nnodes 3:4`, `--nproc-per-node auto`."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from outrider.cli.errors import UserError
from outrider.master.local.sandbox.cgroups import Limits

MOST_MEMBERS = 512
"""The most members on one machine; each has two processes besides its ranks."""
MOST_PROCESSES = 1024
Processes = int | str
"""Worker processes per member: a number, or `gpu`, `cpu` or `auto`, which count them."""
OPEN_FILES, OPEN_FILES_A_MEMBER, MORE_ISOLATED = 40, 6, 4
"""Open files of the command itself, per member, and more per isolated member. Measured were 16, 6 and 4; a master with
two members did not start with 24."""


@dataclass(frozen=True, slots=True)
class Members:
    """The least and the most members of a job; both are equal if --nnodes is a single number."""

    fewest: int
    most: int

    def __str__(self) -> str:
        return str(self.most) if self.fewest == self.most else f"{self.fewest}:{self.most}"


def threads(ranks: int, limits: Limits | None, nproc: int, environ: Mapping[str, str]) -> int:
    """Threads of each rank, so that all ranks of the machine together have one thread per core. 0 leaves the choice to
    torch, which takes all cores for each rank: if the user set OMP_NUM_THREADS, or there is only one rank."""
    least = limits.cpus / nproc if limits is not None and limits.cpus else None
    if "OMP_NUM_THREADS" in environ or (ranks < 2 and least is None):
        return 0
    share = len(os.sched_getaffinity(0)) / ranks
    return max(1, int(share if least is None else min(share, least)))


def parsed_members(value: str) -> Members:
    """Members from `N` or `MIN:MAX`; a ValueError says what the value must be."""
    found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", value.strip())
    if not found:
        raise ValueError("must be a number of members (4) or a range (MIN:MAX, such as 3:4)")
    fewest = int(found[1])
    size = Members(fewest, int(found[2] or fewest))
    if not 1 <= size.fewest <= size.most <= MOST_MEMBERS:
        raise ValueError(f"must be 1 <= MIN <= MAX <= {MOST_MEMBERS}")
    return size


def parsed_processes(value: str) -> Processes:
    """Worker processes from a number or a word; a ValueError says what the value must be."""
    word = value.strip()
    if word in ("auto", "gpu", "cpu"):
        return word
    if not re.fullmatch(r"\d{1,9}", word):
        raise ValueError("must be a number, or one of auto, gpu, cpu")
    if not 1 <= int(word) <= MOST_PROCESSES:
        raise ValueError(f"must be from 1 to {MOST_PROCESSES}")
    return int(word)


def counted(requested: Processes | None, gpus: Callable[[], int]) -> int | None:
    """The number that a word stands for. `gpus` counts the GPUs of a member; `auto` counts GPUs if there are any, else
    CPUs."""
    if not isinstance(requested, str):
        return requested
    found = gpus() if requested != "cpu" else 0
    if requested == "gpu" and not found:
        raise UserError("--nproc-per-node gpu: this machine shows no GPU to this process; give a number, or cpu")
    return min(found, MOST_PROCESSES) or cpu_count()


def cpu_count() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def check_open_files(members: int, isolated: bool = False) -> None:
    """Make sure that the command may open the pipes, logs and descriptors that so many members need."""
    each = OPEN_FILES_A_MEMBER + (MORE_ISOLATED if isolated else 0)
    needed, allowed = OPEN_FILES + each * members, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        raise UserError(f"{members} members need {needed} open files, but `ulimit -n` allows {allowed}; raise it")
