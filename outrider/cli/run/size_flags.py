"""How large a job is, from the flags as torchrun spells them: `--nnodes 3:4`, `--nproc-per-node auto`."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from outrider.cli.errors import UserError
from outrider.master.core.checkpoints import save_signal as checkpoints_save_signal
from outrider.master.core.k8s.values import checkpoint_memory as memory
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


def members(context: click.Context, param: click.Parameter, value: str | None) -> Members | None:
    """A click callback."""
    return None if value is None else parsed_members(value)


def checkpoint_memory(_context: click.Context, _param: click.Parameter, value: str | None) -> int:
    """The callback of --checkpoint-memory: bytes."""
    try:
        return memory.parsed(value) if value is not None else 0
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from wrong


def checkpoint_path(_context: click.Context, _param: click.Parameter, value: str | None) -> str:
    """The callback of --checkpoint-path."""
    if value is None:
        return ""
    try:
        found = memory.parsed_path(value)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from wrong
    if Path(found).is_dir():
        raise click.BadParameter(f"{value!r} is a folder; {memory.PATH_MAY_BE}")
    return found


def save_signal(_context: click.Context, _param: click.Parameter, value: str | None) -> str:
    """The callback of --save-signal."""
    try:
        return checkpoints_save_signal.parsed(value) if value is not None else ""
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from wrong


def threads(ranks: int, limits: Limits | None, nproc: int, environ: Mapping[str, str]) -> int:
    """How many each of the machine's ranks has, so that together they have as many as there are cores; 0 where the user
    has said it, or one rank may have them all. torch takes all cores for each rank."""
    least = limits.cpus / nproc if limits is not None and limits.cpus else None
    if "OMP_NUM_THREADS" in environ or (ranks < 2 and least is None):
        return 0
    share = len(os.sched_getaffinity(0)) / ranks
    return max(1, int(share if least is None else min(share, least)))


def processes(context: click.Context, param: click.Parameter, value: str | None) -> Processes | None:
    """A click callback."""
    return None if value is None else parsed_processes(value)


def parsed_members(value: str) -> Members:
    """Read `N` or `MIN:MAX`, or say what it may be."""
    found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", value.strip())
    if not found:
        raise click.BadParameter(f"{value!r} is neither a number of members (4) nor a range (MIN:MAX, as 3:4)")
    fewest = int(found[1])
    size = Members(fewest, int(found[2] or fewest))
    if not 1 <= size.fewest <= size.most <= MOST_MEMBERS:
        raise click.BadParameter(f"{value}: it must be 1 <= MIN <= MAX <= {MOST_MEMBERS}")
    return size


def parsed_processes(value: str) -> Processes:
    """Read a number or the word for one, or say what it may be."""
    word = value.strip()
    if word in ("auto", "gpu", "cpu"):
        return word
    if not re.fullmatch(r"\d{1,9}", word):
        raise click.BadParameter(f"{value!r} is neither a number nor one of auto, gpu, cpu")
    if not 1 <= int(word) <= MOST_PROCESSES:
        raise click.BadParameter(f"{word} is not in the range 1 to {MOST_PROCESSES}")
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
