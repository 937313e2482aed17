"""Durations as users write them: a number of seconds, or `10m`, `1h30m`, `2.5s`, `500ms`."""

from __future__ import annotations

import re

_PART = r"(\d{1,12}(?:\.\d{0,9})?)(ms|h|m|s)"
_SHAPE = re.compile(f"(?:{_PART})+", re.ASCII)
_PLAIN = re.compile(r"\d{1,12}(?:\.\d{0,9})?", re.ASCII)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

MOST = 1000 * 365 * 86400.0
"""Maximum in seconds: 1000 years. The end of a longer duration has no date."""
ALLOWED = 'a number of seconds or a string such as "10m", "1h30m" or "500ms", at most 1000 years'


def parsed(duration: object) -> float | None:
    """The duration in seconds, from 0 to MOST; None if the value is not a duration. A number in quotes (`"90"`) is a
    number of seconds."""
    if isinstance(duration, bool):
        return None
    if isinstance(duration, int | float):
        return float(duration) if 0 <= duration <= MOST else None
    if not isinstance(duration, str):
        return None
    if _PLAIN.fullmatch(duration):
        return float(duration) if float(duration) <= MOST else None
    if not _SHAPE.fullmatch(duration):
        return None
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_PART, duration))
    return seconds if seconds <= MOST else None
