"""Sizes that are said twice: to outrider, and to the launcher in the command after `--`.

Where only the inner launcher says one, it counts. Where both do and differ, nothing is started: either number would be
somebody's mistake.
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
    """What a torchrun inside the command was told; None and empty where it said nothing, or is no torchrun."""

    nnodes: Members | None = None
    nproc: size_flags.Processes | None = None
    max_restarts: int | None = None
    needless: tuple[str, ...] = ()
    """Its rendezvous flags that were given."""
    ineffective: tuple[str, ...] = ()
    """Its other flags that mean nothing here."""


def read(command: tuple[str, ...], environ: Mapping[str, str]) -> Inner:
    """The inner launcher's flags, or an error that names one which no job can have."""
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
    """The one value that was said, or an error that shows both."""
    if ours is None or theirs is None or ours == theirs:
        return theirs if ours is None else ours
    raise UserError(
        f"{flag} {ours} was given to outrider, {flag} {theirs} to {Path(command[0]).name} after --: "
        "give it once, or the same twice"
    )


def _parsed(parse: Callable[[str], Value], flag: str, value: str | None) -> Value | None:
    """A size in the inner command is held to the same rules as outrider's own."""
    try:
        return None if value is None else parse(value)
    except ValueError as wrong:
        raise UserError(f"the {flag} of the command after --: {wrong}") from None
