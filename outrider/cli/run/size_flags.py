"""How large a job is, from the flags as torchrun spells them: `--nnodes 3:4`, `--nproc-per-node auto`."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from outrider.cli.errors import UserError
from outrider.master.local.sandbox.cgroups import Limits

MOST_MEMBERS = 512
"""On one machine; each is two processes besides the ranks."""
MOST_PROCESSES = 1024
Processes = int | str
"""Worker processes a member: a number, or what counts them: `gpu`, `cpu`, `auto`."""
OPEN_FILES, OPEN_FILES_A_MEMBER, MORE_ISOLATED = 40, 6, 4
"""Of the command, with some room: counted were 16, 6 and 4. A master with two members did not start with 24."""


@dataclass(frozen=True, slots=True)
class Members:
    """At least and at most so many members. A single number is both."""

    fewest: int
    most: int

    def __str__(self) -> str:
        return str(self.most) if self.fewest == self.most else f"{self.fewest}:{self.most}"


def threads(ranks: int, limits: Limits | None, nproc: int, environ: Mapping[str, str]) -> int:
    """How many each of the machine's ranks has, so that together they have as many as there are cores; 0 where the user
    has said it, or one rank may have them all. torch takes all cores for each rank."""
    least = limits.cpus / nproc if limits is not None and limits.cpus else None
    if "OMP_NUM_THREADS" in environ or (ranks < 2 and least is None):
        return 0
    share = len(os.sched_getaffinity(0)) / ranks
    return max(1, int(share if least is None else min(share, least)))


def parsed_members(value: str) -> Members:
    """Read `N` or `MIN:MAX`, or say what it may be."""
    found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", value.strip())
    if not found:
        raise ValueError(f"{value!r} is neither a number of members (4) nor a range (MIN:MAX, as 3:4)")
    fewest = int(found[1])
    size = Members(fewest, int(found[2] or fewest))
    if not 1 <= size.fewest <= size.most <= MOST_MEMBERS:
        raise ValueError(f"{value}: it must be 1 <= MIN <= MAX <= {MOST_MEMBERS}")
    return size


def parsed_processes(value: str) -> Processes:
    """Read a number or the word for one, or say what it may be."""
    word = value.strip()
    if word in ("auto", "gpu", "cpu"):
        return word
    if not re.fullmatch(r"\d{1,9}", word):
        raise ValueError(f"{value!r} is neither a number nor one of auto, gpu, cpu")
    if not 1 <= int(word) <= MOST_PROCESSES:
        raise ValueError(f"{word} is not in the range 1 to {MOST_PROCESSES}")
    return int(word)


def counted(said: Processes | None, gpus: Callable[[], int]) -> int | None:
    """The number that a word means; `gpus` counts those of a member. `auto`: gpu where there is one."""
    if not isinstance(said, str):
        return said
    found = gpus() if said != "cpu" else 0
    if said == "gpu" and not found:
        raise UserError("--nproc-per-node gpu: this machine shows no GPU to this process; give a number, or cpu")
    return min(found, MOST_PROCESSES) or cpu_count()


def cpu_count() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def check_open_files(members: int, isolated: bool = False) -> None:
    """Make sure that the command may open what so many members need: their pipes, logs and descriptors."""
    each = OPEN_FILES_A_MEMBER + (MORE_ISOLATED if isolated else 0)
    needed, allowed = OPEN_FILES + each * members, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        raise UserError(f"{members} members need {needed} open files, `ulimit -n` allows {allowed}: raise it")
