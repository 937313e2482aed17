"""Lines of the ranks' output that fit a pattern."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import Generation
from outrider.wire.messages.text_limits import Pattern


@dataclass(frozen=True, slots=True)
class Group:
    """A named group of a pattern, and what it was in the line; at most 100 characters."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class LineMatched:
    """A rank has written a line that fits one of `Start.patterns`. Sent at once, and again after each Welcome until a
    newer generation starts."""

    generation: Generation
    rank: int
    """The global one; of a command that runs once a member its first."""
    pattern: Pattern
    line: str
    """At most 300 characters."""
    serial: int
    """Grows with each that a member sends: one that is not above the last is a repeat."""
    count: int = 1
    """Lines since the last that was sent of this rank and pattern; `line` is the last of them."""
    age: float = 0.0
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class PatternDropped:
    """A member follows a pattern no more: it is too slow, or its Python cannot read it. Repeated like LineMatched."""

    generation: Generation
    pattern: Pattern
    reason: str
    line: str = ""
    """On which it took too long."""
