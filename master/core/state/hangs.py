"""The state of hang detection: a generation's progress, and the diagnostics requested of its members."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from outrider.master.core.state.durability import Moment, durable, part, special, transient
from outrider.wire.ids import Generation, MemberId, OrderId

Known = dict[object, Any]
"""Stacks and rank lists that were parsed before, each by its own value."""


@dataclass(frozen=True, slots=True)
class Call:
    """A rank's last collective in one process group, or the oldest one there that is not over."""

    group: str
    """The id of the group, different for different groups."""
    name: str
    """The name of the group for users."""
    seq: int
    op: str
    is_over: bool
    shape: str
    """The sizes and types, equal if ranks call the same collective."""
    frame: str
    age: float
    members: frozenset[int] = frozenset()
    """The group's ranks; empty if they are unknown."""

    @property
    def is_of_all(self) -> bool:
        return self.name == DEFAULT_GROUP[1] or self.group == DEFAULT_GROUP[0]


class Used(NamedTuple):
    """The resources that a rank's process and its descendants have used so far."""

    cpu: float
    """The CPU time in seconds."""
    io: float
    net: float
    """The bytes sent and received over TCP, except those to the store."""
    tree: float
    """A number that changes with the set of descendants."""


@dataclass(frozen=True, slots=True)
class Row:
    """The diagnostics of one rank."""

    process: str
    phase: str
    calls: tuple[Call, ...] | None
    """The rank's collectives; None if its process has not reported them itself."""
    stack: tuple[str, ...]
    used: Used | None = None
    frames: int | None = None
    """A number that changes when the main thread moves."""
    has_left: bool = False
    """Whether the rank has destroyed its process group."""


Rows = Mapping[int, Row]
"""The diagnostics of a member's ranks, by local rank."""


ENDED, STOPPED, TRACED, STUCK = "ended", "stopped", "traced", "uninterruptible"


class RankEvidence(NamedTuple):
    """The evidence on one rank."""

    rank: int
    member: MemberId
    process: str = ""
    """The state of the process: ended, stopped (by a signal), traced (stopped by a debugger), uninterruptible; empty
    for any other."""
    phase: str = ""
    has_recorder: bool = False
    """Whether the process itself has reported its collectives."""
    calls: tuple[Call, ...] = ()
    stack: tuple[str, ...] = ()
    """The stack of the main thread, `file:line function`, the deepest frame first; empty if none was reported."""

    used: Used | None = None
    frames: int | None = None
    has_left: bool = False

    @property
    def is_stopped(self) -> bool:
        return self.process in (STOPPED, TRACED)

    @property
    def is_mute(self) -> bool:
        return not self.has_recorder and not self.stack and self.process != ENDED


@dataclass(slots=True)
class Pace:
    """The pace of a job over all its generations."""

    longest: dict[str, float] = durable(dict)
    """The longest init, checkpoint and eval in seconds."""
    slow_steps: deque[tuple[Moment, float]] = durable(deque)
    """The moment and duration of slow steps, each longer than all later ones."""
    knows_steps: bool = durable(False)
    """Whether two consecutive steps were seen."""
    told_uncounted: bool = durable(False)


@dataclass(slots=True)
class Seen:
    """A rank as in its last report."""

    step: int
    phase: str
    since: float
    """The moment at which this phase was first seen."""
    heard_at: float


@dataclass(slots=True)
class Suspicion:
    """The suspicion of a hang: no progress for too long, so diagnostics were requested of the ranks."""

    requests: set[str]
    is_reported: bool
    """Whether the suspicion was reported to the user."""
    is_sure: bool = False
    """Whether two looks have confirmed the hang (`hangs.looks`)."""
    said: dict[str, dict[MemberId, Rows]] = field(default_factory=dict)
    """The members' diagnostics, by what was requested."""


@dataclass(slots=True)
class Looks:
    """The looks at the ranks since the last progress (`hangs.looks`)."""

    asked: int = 0
    request: str = ""
    """The request of the look that is not answered yet; empty if there is none."""
    since: float = 0.0
    """The moment of the progress after which the looks were made."""
    at: float = 0.0
    """The moment at which the last look was answered."""
    evidence: list[RankEvidence] = field(default_factory=list)
    """The evidence of the last look."""
    doubtless: object = None
    """The finding of the last look that is beyond doubt."""
    worked: dict[int, float] = field(default_factory=dict)
    """The moment at which each rank was last seen at work; ranks never seen at work are missing."""
    moved: float | None = None
    """The moment at which bytes of any rank were last seen to move; None if never."""
    at_work: frozenset[int] = frozenset()
    """The ranks for whose work the generation gets more time; empty if it is because bytes move."""
    is_let_work: bool = False
    """Whether the generation gets more time."""


@dataclass(slots=True)
class Watch:
    """The progress of a generation."""

    generation: Generation
    began: float
    since: float
    """The moment of the last progress."""
    stepped_at: float
    """The moment of the last step."""
    heard_at: float
    step: int = 0
    """The highest step of a rank that is beyond its init."""
    ranks: dict[tuple[MemberId, int], Seen] = field(default_factory=dict)
    phases: Counter[str] = field(default_factory=Counter)
    """The number of ranks in each phase."""
    inherited: tuple[int, str] | None = None
    """The step, and the phase that counted, as an earlier master saved them last."""
    ending: bool = False
    """Whether a rank has ended with 0, so that the others may make no training step any more."""
    lenient: bool = False
    """Whether the limit of an evaluation applies although no rank reports one."""
    questions: int = 0
    suspicion: Suspicion | None = None
    looks: Looks = field(default_factory=Looks)


@dataclass(slots=True)
class Collection:
    """A request for diagnostics to every member, and its answers so far."""

    request: str
    what: str
    orders: dict[OrderId, MemberId] = field(default_factory=dict)
    bodies: dict[MemberId, str] = field(default_factory=dict)
    """The JSON answers to a request of the user."""
    said: dict[MemberId, Rows] = field(default_factory=dict)
    """The parsed answers to a request of the master."""
    known: Known = field(default_factory=dict)
    missing: set[MemberId] = field(default_factory=set)
    is_ours: bool = False
    """Whether the master made the request, because of a hang, and not the user."""


DEFAULT_GROUP = ("0", "default_pg")


@dataclass(slots=True)
class Hangs:
    """The running generation's progress, and the requests for diagnostics."""

    collections: dict[str, Collection] = transient(dict)
    answered: list[Collection] = transient(list)
    """The complete answers to the master's own requests, until they are evaluated."""
    pace: Pace = part(Pace, key="pace")
    watch: Watch | None = special(None)
    """The progress of the running generation; None if there is none."""
