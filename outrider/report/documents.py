"""The documents that a report is made of, as far as it reads them.

A status (docs/reference/status.md), the parts of a history, one of each master (docs/contracts.md), and events. Every
field has a default, so that a wrong or missing one leaves the rest of its document.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from outrider.wire.messages.text_limits import Longest

Amounts = dict[str, float]
"""Seconds by name."""
Name = Annotated[str, Longest(100, prose=True)]
Message = Annotated[str, Longest(2000, prose=True)]
Traceback = Annotated[str, Longest(5000, prose=True)]


# -- the status ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class StatusFault:
    time: Name = ""
    kind: Name = ""
    member: Name | None = None
    reason: str = ""
    seconds_lost: float | None = None
    stages: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Member:
    id: Name = ""
    rank_index: int | None = None
    node: Name = ""


@dataclass(frozen=True, slots=True)
class Straggler:
    member: Name = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    version: int = 1
    job: Name = ""
    phase: Name = ""
    step: int = 0
    step_estimated: bool = False
    steps_repeated: int = 0
    restarts: int = 0
    goodput: float | None = None
    time: Amounts = field(default_factory=dict)
    replicated_step: int | None = None
    message: Message = ""
    exit_code: int | None = None
    faults: tuple[StatusFault, ...] = ()
    members: tuple[Member, ...] = ()
    excluded_nodes: tuple[Name, ...] = ()
    stragglers: tuple[Straggler, ...] = ()


# -- a part of the history ----------------------------------------------------------------------------------------
class Range(NamedTuple):
    """Rank indexes from the first to the last."""

    first: int
    last: int


class Span(NamedTuple):
    """The beginning of a span, in tenths of a second since the job began, and its cause, a place in `Part.causes`."""

    at: int
    cause: int


class GenerationBegan(NamedTuple):
    at: int
    name: Name
    members: int
    ranks: int


class Point(NamedTuple):
    at: float
    value: float


@dataclass(frozen=True, slots=True)
class Curve:
    """A number of the log over time, the oldest point first."""

    name: Name = ""
    points: tuple[Point, ...] = ()
    low: float | None = None
    high: float | None = None
    """Of all values, of which the points are some."""


class Holder(NamedTuple):
    """The member that has a rank index from this moment."""

    at: int
    rank_index: int
    member: Name
    node: Name


class Event(NamedTuple):
    at: float
    kind: Name
    severity: Name
    member: Name | None
    sentence: str


class Decision(NamedTuple):
    at: float
    kind: Name
    sentence: str


@dataclass(frozen=True, slots=True)
class Track:
    seats: tuple[Range, ...] = ()
    spans: tuple[Span, ...] = ()
    end: int = 0


@dataclass(frozen=True, slots=True)
class Pod:
    phase: Name = ""
    reason: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was known of one rank: `what` is exit, rank or line; the other fields depend on it."""

    what: Name = ""
    member: Name | None = None
    rank: int | None = None
    sentence: str = ""
    error: str = ""
    frame: str = ""
    traceback: Traceback = ""
    step: int | None = None
    state: Name = ""
    stack: tuple[str, ...] = ()
    collective: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    at: float = 0.0
    kind: Name = ""
    member: Name | None = None
    rank_index: int | None = None
    ranks: tuple[int, ...] = ()
    node: Name = ""
    generation: Name = ""
    reason: str = ""
    pod: Pod = Pod()
    evidence: tuple[Evidence, ...] = ()
    decisions: tuple[Decision, ...] = ()
    stages: Amounts = field(default_factory=dict)
    seconds_lost: float | None = None
    cost: Amounts = field(default_factory=dict)
    recovered_at: float | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    version: int = 1
    term: int = 0
    began_at: float = 0.0
    since: float = 0.0
    until: float = 0.0
    host: Name = ""
    """The machine of a local job."""
    causes: tuple[Name, ...] = ()
    tracks: tuple[Track, ...] = ()
    generations: tuple[GenerationBegan, ...] = ()
    holders: tuple[Holder, ...] = ()
    faults: tuple[Fault, ...] = ()
    events: tuple[Event, ...] = ()
    numbers: tuple[Curve, ...] = ()
