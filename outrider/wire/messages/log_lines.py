"""Messages about lines of the ranks' output that match a pattern."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import Generation
from outrider.wire.messages.text_limits import Pattern


@dataclass(frozen=True, slots=True)
class Group:
    """A named group of a pattern and its text in the line, at most 100 characters."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class LineMatched:
    """A rank has written a line that matches one of `Start.patterns`. Sent at once, and again after each Welcome until
    a newer generation starts."""

    generation: Generation
    rank: int
    """The global rank; for a command that runs once per member, its first rank."""
    pattern: Pattern
    line: str
    """The line, at most 300 characters."""
    serial: int
    """The number of this message, which grows per member; one that is not above the last is a repeat."""
    count: int = 1
    """The number of lines since the last message for this rank and pattern; `line` is the last of them."""
    age: float = 0.0
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class PatternDropped:
    """A member no longer searches for a pattern: it is too slow, or the member's Python cannot compile it. Repeated
    like LineMatched."""

    generation: Generation
    pattern: Pattern
    reason: str
    line: str = ""
    """The line on which the search took too long."""
