"""`--scaling throughput,min-gain=0.3,cooldown=60`: the job finds its own size."""

from __future__ import annotations

import click

from master.core.cluster import durations
from master.core.spec import EFFICIENCY, THROUGHPUT

SETTINGS = {"min-gain": "min_gain", "cooldown": "scale_cooldown", "evaluation": "scale_evaluation"}
"""By their names in the flag those of a JobSpec."""

Scaling = dict[str, str | float]
"""Fields of a JobSpec; empty where the size is the user's."""


def scaling(_context: click.Context, _param: click.Parameter, value: str | None) -> Scaling:
    """A click callback."""
    return {} if value is None else parsed(value)


def parsed(text: str) -> Scaling:
    policy, *settings = (part.strip() for part in text.split(","))
    if policy not in (THROUGHPUT, EFFICIENCY):
        raise click.BadParameter(f"{policy!r} is no policy; there are {THROUGHPUT} and {EFFICIENCY}")
    found: Scaling = {"scaling": policy}
    for setting in settings:
        name, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or name not in SETTINGS:
            raise click.BadParameter(
                f"{setting!r} is no setting; there are {', '.join(f'{each}=' for each in SETTINGS)}"
            )
        if SETTINGS[name] in found:
            raise click.BadParameter(f"{text!r} says {name} twice")
        found[SETTINGS[name]] = _gain(value) if name == "min-gain" else _seconds(name, value)
    return found


def _gain(text: str) -> float:
    try:
        gain = float(text)
    except ValueError:
        gain = -1.0
    if not 0 <= gain <= 1:
        raise click.BadParameter(f"min-gain: {text!r} must be from 0 (whatever it brings) to 1 (linear growth)")
    return gain


def _seconds(name: str, text: str) -> float:
    seconds = durations.parsed(text)
    if seconds is None:
        raise click.BadParameter(f"{name}: {text!r} is no duration; write {durations.ALLOWED}")
    return seconds
