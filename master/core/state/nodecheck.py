"""The state of a node check: its rounds and findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.master.core.state.durability import durable, inherited, transient
from outrider.wire.ids import MemberId, OrderId, PodUid, RankIndex
from outrider.wire.messages.node_check import PeerCheck

Groups = tuple[tuple[MemberId, ...], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one member's probe in one round."""

    result: str
    error: str = ""
    kind: str = ""
    compute: float = 0.0
    elapsed: float = 0.0
    peers: tuple[PeerCheck, ...] = ()
    began: float = 0.0
    """The moment at which its probe began, estimated on the master's clock."""


@dataclass(frozen=True, slots=True)
class Round:
    """A finished round: its groups and the answer of each member."""

    number: int
    groups: Groups
    answers: Mapping[MemberId, Answer]


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict of all rounds on a member, with its best `compute` and `network` times; 0 if there is none.

    Only the finding of a healthy member is saved for the next master.
    """

    verdict: str = transient("ok")
    """ok, faulty, unclear (it never passed, possibly because of another member) or unmeasured (its port was in use, or
    no member was left to measure it with)."""
    check: str = transient("")
    """The check that it did not pass: compute or network; else empty."""
    reason: str = transient("")
    kind: str = ""
    compute: float = 0.0
    network: float = 0.0


@dataclass(slots=True)
class Check:
    """A node check in progress (`nodecheck.rounds`), with its present round, if any."""

    subjects: set[MemberId]
    """The members that are judged."""
    helpers: list[MemberId]
    """The members that are known to be healthy and measure together with the subjects."""
    training: frozenset[MemberId]
    """The helpers that train meanwhile and so take part in the all-gather only."""
    rounds: list[Round] = field(default_factory=list)
    number: int = 0
    groups: Groups = ()
    began_at: float = 0.0
    orders: dict[MemberId, OrderId] = field(default_factory=dict)
    """The pending order of each member whose answer is awaited."""
    ports: dict[MemberId, int] = field(default_factory=dict)
    """The ports that this round uses up."""
    answers: dict[MemberId, Answer] = field(default_factory=dict)
    lost: set[MemberId] = field(default_factory=set)
    """The members that cannot answer any more, to be handled in this step."""
    mute: set[MemberId] = field(default_factory=set)
    """The living subjects that were not ready again for this round and count as without an answer in it."""


@dataclass(slots=True)
class NodeCheck:
    """The findings of node checks, and the check in progress."""

    check: Check | None = transient(None)
    rounds: list[dict[str, object]] = durable(list)
    """The newest rounds of node checks, as in the status."""
    round_number: int = durable(0)
    """The number of the next round; it continues over replacements and masters."""
    checked: dict[MemberId, tuple[PodUid, Finding]] = inherited(dict)
    """The findings of an earlier master's members that had passed the node check."""
    exclusions: dict[RankIndex, int] = durable(dict)
    """The number of members that did not pass, by rank index."""

    def lose(self, member: MemberId) -> None:
        """Notes that a member cannot answer any more."""
        if self.check is not None and member in self.check.orders:
            self.check.lost.add(member)
