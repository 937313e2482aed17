"""A generation's progress, who was asked about it, and what they said."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from outrider.master.core.state.durability import Moment, durable, part, special, transient
from outrider.wire.ids import Generation, MemberId, OrderId

Known = dict[object, Any]
"""Stacks and lists of ranks that were read before, by themselves."""


@dataclass(frozen=True, slots=True)
class Call:
    """A rank's last collective in one process group, or the oldest there that is not over."""

    group: str
    """Unlike for unlike groups."""
    name: str
    """What users call it."""
    seq: int
    op: str
    is_over: bool
    shape: str
    """Sizes and types: equal where ranks call the same thing."""
    frame: str
    age: float
    members: frozenset[int] = frozenset()
    """The group's ranks, empty where they are not known."""

    @property
    def is_of_all(self) -> bool:
        return self.name == DEFAULT_GROUP[1] or self.group == DEFAULT_GROUP[0]


class Used(NamedTuple):
    """What a rank's process and all that descends from it have used so far."""

    cpu: float
    """Seconds."""
    io: float
    net: float
    """Bytes over TCP, but for those to the store."""
    tree: float
    """Another number where other processes descend from it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One rank's words."""

    process: str
    phase: str
    calls: tuple[Call, ...] | None
    """None: its process itself has said nothing of its collectives."""
    stack: tuple[str, ...]
    used: Used | None = None
    frames: int | None = None
    """Another number where its main thread is elsewhere."""
    has_left: bool = False
    """It has destroyed its process group."""


Rows = Mapping[int, Row]
"""By local rank."""


ENDED, STOPPED, TRACED, STUCK = "ended", "stopped", "traced", "uninterruptible"


class RankEvidence(NamedTuple):
    """What is known of one rank."""

    rank: int
    member: MemberId
    process: str = ""
    """ended, stopped (by a signal), traced (stopped by a debugger), uninterruptible; empty: nothing of that kind."""
    phase: str = ""
    has_recorder: bool = False
    """Its process itself has answered which collectives it called."""
    calls: tuple[Call, ...] = ()
    stack: tuple[str, ...] = ()
    """`file:line function` of its main thread, the deepest first; empty where it gave none."""

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
    """What is known of a job over all its generations."""

    longest: dict[str, float] = durable(dict)
    """Seconds, of init, checkpoint and eval."""
    slow_steps: deque[tuple[Moment, float]] = durable(deque)
    """When, and how long; each longer than all that came after it."""
    knows_steps: bool = durable(False)
    """A step was seen to follow another."""
    told_uncounted: bool = durable(False)


@dataclass(slots=True)
class Seen:
    """A rank, as its last report had it."""

    step: int
    phase: str
    since: float
    """When this phase was first seen."""
    heard_at: float


@dataclass(slots=True)
class Suspicion:
    """No progress for too long: the ranks are asked where they are."""

    requests: set[str]
    is_reported: bool
    """The user knows of it."""
    is_sure: bool = False
    """Two looks have shown it beyond doubt (`hangs.looks`)."""
    said: dict[str, dict[MemberId, Rows]] = field(default_factory=dict)
    """By what was asked, what the members that answered say."""


@dataclass(slots=True)
class Looks:
    """What was seen of the ranks since nothing goes on (`hangs.looks`)."""

    asked: int = 0
    request: str = ""
    """The one that is not answered yet."""
    since: float = 0.0
    """The progress behind which they were made."""
    at: float = 0.0
    evidence: list[RankEvidence] = field(default_factory=list)
    """When the last one was answered, and what it showed."""
    doubtless: object = None
    """What it had beyond doubt."""
    worked: dict[int, float] = field(default_factory=dict)
    """By rank when it was last seen at work; a rank that has not is not there."""
    moved: float | None = None
    """When bytes of whichever rank were last seen to move."""
    at_work: frozenset[int] = frozenset()
    is_let_work: bool = False
    """They may take longer, because these ranks work; nobody named: because bytes move."""


@dataclass(slots=True)
class Watch:
    """A generation's progress."""

    generation: Generation
    began: float
    since: float
    """The last progress."""
    stepped_at: float
    """The last step."""
    heard_at: float
    step: int = 0
    """The highest step of a rank that is beyond its init."""
    ranks: dict[tuple[MemberId, int], Seen] = field(default_factory=dict)
    phases: Counter[str] = field(default_factory=Counter)
    """How many ranks are in which."""
    inherited: tuple[int, str] | None = None
    """The step, and the phase that counted, when an earlier master wrote them down last."""
    ending: bool = False
    """A rank has ended with 0: what the others still do is no training step."""
    lenient: bool = False
    """It has the time of an evaluation, though no rank says that it makes one."""
    questions: int = 0
    suspicion: Suspicion | None = None
    looks: Looks = field(default_factory=Looks)


@dataclass(slots=True)
class Collection:
    """A question to every member: who has answered what."""

    request: str
    what: str
    orders: dict[OrderId, MemberId] = field(default_factory=dict)
    bodies: dict[MemberId, str] = field(default_factory=dict)
    """Where a user asks."""
    said: dict[MemberId, Rows] = field(default_factory=dict)
    """Where we ask."""
    known: Known = field(default_factory=dict)
    missing: set[MemberId] = field(default_factory=set)
    is_ours: bool = False
    """Not a user asks, but we: about a hang."""


DEFAULT_GROUP = ("0", "default_pg")


@dataclass(slots=True)
class Hangs:
    """The running generation's progress, and who was asked about it."""

    collections: dict[str, Collection] = transient(dict)
    answered: list[Collection] = transient(list)
    """Ours that are complete, until they are looked at."""
    pace: Pace = part(Pace, key="pace")
    watch: Watch | None = special(None)
    """Of the running generation's progress."""
