"""How long a rank may make no progress, from `--hang-after 120`, `step=120,init=1800` or `off`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import click

PHASES = ("step", "init", "checkpoint", "eval")
LONGEST = 7 * 24 * 3600
"""Seconds."""

HangLimits = Mapping[str, int]
"""Seconds by phase, of those that were given. None where hangs are not looked for."""


def hang_limits(context: click.Context, param: click.Parameter, value: str | None) -> HangLimits | None:
    """A click callback."""
    return {} if value is None else parsed_hang_limits(value)


def parsed_hang_limits(value: str) -> HangLimits | None:
    """A number alone is that of training steps."""
    word = value.strip()
    if word == "off":
        return None
    if re.fullmatch(r"[+-]?[\d.]+", word):
        return {"step": _seconds(word)}
    found: dict[str, int] = {}
    for part in word.split(","):
        phase, equals, limit = (each.strip() for each in part.partition("="))
        if not equals or phase not in PHASES:
            raise click.BadParameter(
                f"{part.strip()!r} in {value!r} is no limit; it may be off, SECONDS, or PHASE=SECONDS with "
                f"{', '.join(PHASES)}, several divided by commas (step=120,init=1800)"
            )
        if phase in found:
            raise click.BadParameter(f"{value!r} says {phase} twice")
        found[phase] = _seconds(limit, f"{phase}: ")
    return found


def _seconds(word: str, phase: str = "") -> int:
    if not re.fullmatch(r"\d{1,9}", word) or not 1 <= int(word) <= LONGEST:
        raise click.BadParameter(f"{phase}{word!r} is no whole number of seconds from 1 to {LONGEST}, nor off")
    return int(word)
