"""Counts, durations, moments and what others have said, as they stand in a sentence."""

from __future__ import annotations

from datetime import UTC, datetime

LONGEST_SHOWN = 60
"""Characters of what a user has written."""
SENTENCE = 300
"""Characters of what another program has said."""


def seconds(value: float) -> str:
    """A duration."""
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"


def exactly(value: float) -> str:
    """A recovery is a matter of tenths: two decimals below ten seconds."""
    return f"{value:.2f} s" if value < 10 else seconds(value)


def counted(count: int, noun: str) -> str:
    """`1 member`, `3 members`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def wanted(count: int, noun: str) -> str:
    """`1 member is wanted`, `3 members are wanted`."""
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'} wanted"


def moment(unix_time: float) -> str:
    """RFC 3339, UTC."""
    text = datetime.fromtimestamp(unix_time, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def quoted(text: str, longest: int = LONGEST_SHOWN) -> str:
    return f'"{text}"' if len(text) <= longest else f'"{text[: longest - 3]}..."'


def brief(text: object) -> str:
    """One line of at most `SENTENCE` characters without a full stop: it stands within another sentence."""
    line = " ".join(str(text or "").split()).rstrip(".")
    return line if len(line) <= SENTENCE else f"{line[: SENTENCE - 1]}…"
