"""Counts, durations, moments and quoted text, formatted for a sentence."""

from __future__ import annotations

from datetime import UTC, datetime

LONGEST_SHOWN = 60
"""The most characters shown of a text that a user has written."""
SENTENCE = 300
"""The most characters shown of a message of another program."""


def seconds(value: float) -> str:
    """A duration with one decimal below ten seconds, else in whole seconds."""
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"


def exactly(value: float) -> str:
    """A duration with two decimals below ten seconds: recoveries differ by tenths."""
    return f"{value:.2f} s" if value < 10 else seconds(value)


def counted(count: int, noun: str) -> str:
    """`1 member`, `3 members`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def requested(count: int, noun: str) -> str:
    """`1 member is requested`, `3 members are requested`."""
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'} requested"


def moment(unix_time: float) -> str:
    """A unix time as RFC 3339 in UTC, with milliseconds."""
    text = datetime.fromtimestamp(unix_time, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def quoted(text: str, longest: int = LONGEST_SHOWN) -> str:
    return f'"{text}"' if len(text) <= longest else f'"{text[: longest - 3]}..."'


def brief(text: object) -> str:
    """The text as one line of at most `SENTENCE` characters without a full stop, to stand within a sentence."""
    line = " ".join(str(text or "").split()).rstrip(".")
    return line if len(line) <= SENTENCE else f"{line[: SENTENCE - 1]}…"
