"""The state of the history: what a report shows of a job, beyond its status."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.master.core.state.durability import transient
from outrider.master.core.state.generation import Failure, Fault
from outrider.master.core.state.hangs import RankEvidence
from outrider.wire.ids import MemberId, RankIndex

CASES, EVENTS, GENERATIONS, HOLDERS, LINES = 60, 400, 400, 2000, 8
"""The most faults, events, generations, changes of members and matched lines that are kept, the newest of each."""
POINTS = 200
"""The most points of a curve."""


QUIET = ("GenerationStarted", "MemberReady", "MemberCreated", "CheckpointSaved", "MemberSucceeded")
"""The Events of each member that would push out those of the job."""


@dataclass(slots=True)
class Track:
    """What one rank index did over time: the beginning and the cause of each span, without gaps."""

    spans: list[tuple[float, str]] = field(default_factory=list)
    end: float = 0.0
    shortest: float = 0.1
    """Seconds below which a span is merged into the one before it; it grows with the number of spans."""


class RuleLine(NamedTuple):
    """A line that a rule of the user has matched."""

    at: float
    member: MemberId
    rank: int
    line: str


@dataclass(slots=True)
class Case:
    """A fault with what was known of it."""

    fault: Fault
    began_at: float
    rank_index: RankIndex | None
    ranks: tuple[int, ...]
    node: str
    step: int
    before: dict[str, float]
    """The time account when the fault was noted."""
    pod: tuple[str, str, int | None] = ("", "", None)
    """The phase of its member's pod, the platform's reason, and the exit code of its trainer's container."""
    failures: tuple[Failure, ...] = ()
    evidence: tuple[RankEvidence, ...] = ()
    """What the ranks of a hang were doing."""
    lines: tuple[RuleLine, ...] = ()
    """The lines before it that the user's rules have matched."""
    recovered_at: float | None = None
    cost: dict[str, float] = field(default_factory=dict)
    """The seconds of all members by cause from the fault to the first new step."""


@dataclass(slots=True)
class Curve:
    """A number of the log over time: at most `POINTS` points from the first to the newest, about evenly spaced."""

    points: list[tuple[float, float]] = field(default_factory=list)
    newest: tuple[float, float] = (float("-inf"), 0.0)
    low: float = float("inf")
    high: float = float("-inf")
    """Of all values, also of those between the points."""
    every: float = 0.0
    """Seconds between two points at least; it doubles if there are too many."""


class Said(NamedTuple):
    at: float
    kind: str
    severity: str
    member: str | None
    sentence: str


@dataclass(slots=True)
class History:
    """What a report needs (`history.document`). Another master begins its own part."""

    tracks: dict[RankIndex, Track] = transient(dict)
    generations: deque[tuple[float, str, int, int]] = transient(lambda: deque(maxlen=GENERATIONS))
    holders: deque[tuple[float, RankIndex, str, str]] = transient(lambda: deque(maxlen=HOLDERS))
    cases: deque[Case] = transient(lambda: deque(maxlen=CASES))
    said: deque[Said] = transient(lambda: deque(maxlen=EVENTS))
    lines: deque[RuleLine] = transient(lambda: deque(maxlen=LINES))
    curves: dict[str, Curve] = transient(dict)
    """By the name of the number."""
    looked: tuple[RankEvidence, ...] = transient(())
    """What the ranks did at the last look at a generation that may hang."""
    is_new: bool = transient(False)
    """Whether something has happened since it was written last."""
    written_at: float = transient(0.0)
