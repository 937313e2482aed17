"""A node check that goes on, its rounds, and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.master.core.state.durability import durable, inherited, transient
from outrider.wire.ids import MemberId, OrderId, PodUid, RankIndex
from outrider.wire.messages.node_check import PeerCheck

Groups = tuple[tuple[MemberId, ...], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one member's probe found in one round."""

    result: str
    error: str = ""
    kind: str = ""
    compute: float = 0.0
    elapsed: float = 0.0
    peers: tuple[PeerCheck, ...] = ()
    began: float = 0.0
    """When its probe began, on the master's clock, as far as that can be told."""


@dataclass(frozen=True, slots=True)
class Round:
    """One that is over: who was together, and what each said."""

    number: int
    groups: Groups
    answers: Mapping[MemberId, Answer]


@dataclass(frozen=True, slots=True)
class Finding:
    """What all rounds say about a member. `compute` and `network` are its best times, 0 where there is none.
    Only one that is well is handed over."""

    verdict: str = transient("ok")
    """ok, faulty, unclear (it was never well, and that may be another's fault) or unmeasured (its port was taken, or
    nobody was left to measure it with)."""
    check: str = transient("")
    """compute or network: which one it did not pass."""
    reason: str = transient("")
    kind: str = ""
    compute: float = 0.0
    network: float = 0.0


@dataclass(slots=True)
class Check:
    """A node check that is going on (`nodecheck.rounds`), and its present round, if one is."""

    subjects: set[MemberId]
    """Who is judged."""
    helpers: list[MemberId]
    """Who is known to be well, and measures with them."""
    training: frozenset[MemberId]
    """Helpers that train meanwhile: all-gather only."""
    rounds: list[Round] = field(default_factory=list)
    number: int = 0
    groups: Groups = ()
    began_at: float = 0.0
    orders: dict[MemberId, OrderId] = field(default_factory=dict)
    """Of those whose answers are awaited."""
    ports: dict[MemberId, int] = field(default_factory=dict)
    """The ports that this round uses up."""
    answers: dict[MemberId, Answer] = field(default_factory=dict)
    lost: set[MemberId] = field(default_factory=set)
    """Members that cannot answer any more, to be looked at in this step."""
    mute: set[MemberId] = field(default_factory=set)
    """Subjects that live and were not ready again for this round: they count as without an answer in it."""


@dataclass(slots=True)
class NodeCheck:
    """What the node check has found, and the one that goes on."""

    check: Check | None = transient(None)
    rounds: list[dict[str, object]] = durable(list)
    """The newest rounds of the node check, as users read them."""
    round_number: int = durable(0)
    """Of the next round: they count on over replacements and masters."""
    checked: dict[MemberId, tuple[PodUid, Finding]] = inherited(dict)
    """Of an earlier master's members: those that had passed the node check, and what it measured."""
    exclusions: dict[RankIndex, int] = durable(dict)
    """Members that did not pass it, by rank index."""

    def lose(self, member: MemberId) -> None:
        """It cannot answer any more."""
        if self.check is not None and member in self.check.orders:
            self.check.lost.add(member)
