"""torchrun's flags that `outrider run` takes so that a command line need not be rewritten, and what becomes of them.

The rendezvous is the master's business, worker processes are always forked or started anew, logs have their own flag:
such a flag changes nothing here. It is accepted with its value and named once, so that nobody believes it did anything.
--virtual-local-rank is refused, because a script that was written for it would run wrongly.
"""

from __future__ import annotations

from typing import Any

import click

from outrider.cli.flags import Command, both_spellings

RENDEZVOUS = (
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "master-addr",
    "master-port",
    "local-addr",
    "node-rank",
)
OTHERS = (
    "monitor-interval",
    "start-method",
    "event-log-handler",
    "role",
    "redirects",
    "tee",
    "local-ranks-filter",
    "duplicate-stdout-filters",
    "duplicate-stderr-filters",
    "logs-specs",
    "numa-binding",
    "signals-to-handle",
    "shutdown-timeout",
)
SWITCHES = ("standalone", "run-path")
SHORT = {"redirects": "-r", "tee": "-t"}


def accepted(command: Command) -> Command:
    """Add the flags to a click command, hidden from its help, under their own names."""
    for flag in (*RENDEZVOUS, *OTHERS):
        short = (SHORT[flag],) if flag in SHORT else ()
        command = click.option(*both_spellings(flag), *short, flag.replace("-", "_"), hidden=True)(command)
    command = click.option(
        *both_spellings("virtual-local-rank"), is_flag=True, hidden=True, expose_value=False, callback=_refused
    )(command)
    for flag in SWITCHES:
        command = click.option(*both_spellings(flag), flag.replace("-", "_"), is_flag=True, hidden=True)(command)
    return command


def _refused(_context: click.Context, _param: click.Parameter, is_given: bool) -> None:
    if is_given:
        raise click.BadParameter(
            "each rank has its own LOCAL_RANK here, and a script that is written for 0 runs wrongly"
        )


def not_needed(given: dict[str, Any], inner: tuple[str, ...] = ()) -> list[str]:
    """A line about the flags that change nothing, by why: those given here, and those given to an inner launcher."""
    names = [f"--{flag}" for flag in (*RENDEZVOUS, *OTHERS, *SWITCHES) if _is_given(given, flag)]
    names += [flag for flag in inner if flag not in names]
    ours = {f"--{flag}" for flag in (*RENDEZVOUS, "standalone")}
    lines = []
    if needless := [name for name in names if name in ours]:
        lines.append(f"not needed: {', '.join(needless)} (the master finds the rendezvous' address and port itself)")
    if ineffective := [name for name in names if name not in ours]:
        lines.append(f"without effect here: {', '.join(ineffective)}")
    return lines


def _is_given(given: dict[str, Any], flag: str) -> bool:
    return given.get(flag.replace("-", "_")) not in (None, False)
