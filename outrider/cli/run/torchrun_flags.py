"""torchrun's flags that `outrider run` accepts without effect, so that a command line need not be rewritten.

The master chooses the rendezvous, worker processes are always forked or relaunched, and logs have a flag of their own:
such a flag changes nothing here. It is accepted with its value and named once, so that the user knows that it has no
effect. --virtual-local-rank is refused, because a script that was written for it would run wrongly.
"""

from __future__ import annotations

from typing import Any

import click

from outrider.cli.flags import Command, Flag, both_spellings

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
    """Add these flags to a click command, hidden from its help."""
    for flag in (*RENDEZVOUS, *OTHERS):
        short = (SHORT[flag],) if flag in SHORT else ()
        command = click.option(*both_spellings(flag), *short, flag.replace("-", "_"), hidden=True)(command)
    command = click.option(
        *both_spellings("virtual-local-rank"), cls=Flag, is_flag=True, hidden=True, expose_value=False,
        callback=_refused,
    )(command)  # fmt: skip
    for flag in SWITCHES:
        command = click.option(*both_spellings(flag), flag.replace("-", "_"), is_flag=True, hidden=True)(command)
    return command


def _refused(_context: click.Context, _param: click.Parameter, is_given: bool) -> None:
    if is_given:
        raise click.BadParameter(
            "must not be used: each rank has its own LOCAL_RANK here, and a script written for 0 would run wrongly"
        )


def not_needed(given: dict[str, Any], inner: tuple[str, ...] = ()) -> list[str]:
    """A line about the flags without effect for each reason: those given here, and those given to an inner launcher."""
    names = [f"--{flag}" for flag in (*RENDEZVOUS, *OTHERS, *SWITCHES) if _is_given(given, flag)]
    names += [flag for flag in inner if flag not in names]
    ours = {f"--{flag}" for flag in (*RENDEZVOUS, "standalone")}
    lines = []
    if needless := [name for name in names if name in ours]:
        lines.append(f"not needed: {', '.join(needless)} (the master chooses the rendezvous' address and port)")
    if ineffective := [name for name in names if name not in ours]:
        lines.append(f"no effect: {', '.join(ineffective)}")
    return lines


def _is_given(given: dict[str, Any], flag: str) -> bool:
    return given.get(flag.replace("-", "_")) not in (None, False)
