"""Compares the sizes given to outrider with those of the launcher in the command after `--`.

If only the inner launcher gives a size, it counts. If both give one and they differ, nothing is started: one of the two
must be a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from outrider.cli.errors import UserError
from outrider.cli.run import size_flags
from outrider.cli.run.size_flags import Members
from training_hooks.command.plan import flags_inside

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Inner:
    """The flags of a torchrun inside the command; None or empty if a flag is missing or the command is not torchrun."""

    nnodes: Members | None = None
    nproc: size_flags.Processes | None = None
    max_restarts: int | None = None
    needless: tuple[str, ...] = ()
    """The rendezvous flags given to torchrun."""
    ineffective: tuple[str, ...] = ()
    """Other flags of torchrun that have no effect here."""


def read(command: tuple[str, ...], environ: Mapping[str, str]) -> Inner:
    """The inner launcher's flags, or an error that names a value which no job can have."""
    found = flags_inside(command, environ)
    if found is None:
        return Inner()
    return Inner(
        nnodes=_parsed(size_flags.parsed_members, "--nnodes", found.nnodes),
        nproc=_parsed(size_flags.parsed_processes, "--nproc-per-node", found.nproc_per_node),
        max_restarts=found.max_restarts,
        needless=tuple(found.rendezvous),
        ineffective=tuple(found.ignored),
    )


def agreed(flag: str, ours: Value | None, theirs: Value | None, command: tuple[str, ...]) -> Value | None:
    """The value that was given, or an error that shows both if they differ."""
    if ours is None or theirs is None or ours == theirs:
        return theirs if ours is None else ours
    raise UserError(
        f"{flag} {ours}: must equal {flag} {theirs} of {Path(command[0]).name} after --; give it once, or the same "
        "value twice"
    )


def _parsed(parse: Callable[[str], Value], flag: str, value: str | None) -> Value | None:
    """A size in the inner command follows the same rules as outrider's own."""
    try:
        return None if value is None else parse(value)
    except ValueError as wrong:
        raise UserError(f"{flag} {value} of the command after --: {wrong}") from None
