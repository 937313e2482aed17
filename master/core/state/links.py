"""The links between members, as their last reports have them; `network.link_health` judges them."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.wire.ids import MemberId

ANSWERED_WITHIN = 1.0

UNDECIDED = 6.0
"""Seconds after which a missing member is found again, or known to be cut off from the member that misses it."""

Pair = tuple[MemberId, MemberId]


@dataclass(slots=True)
class Row:
    """The link from one member to another, as the first one reported it last."""

    at: float
    round_trip: float = 0.0
    lost: int = 0
    sent: int = 0
    missing_since: float | None = None
    noted_at: float = 0.0
    """The moment at which the master first received that the other is missing."""
    was_found: bool = False
    """Whether the other has answered this member before."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Two members that cannot reach each other, ordered by name; or `first` that cannot reach `second`."""

    first: MemberId
    second: MemberId
    since: float
    is_both: bool

    @property
    def pair(self) -> Pair:
        return pair_of(self.first, self.second)


@dataclass(frozen=True, slots=True)
class Slow:
    """A link, or all links of a member, with much higher latency or loss than the others."""

    members: tuple[MemberId, ...]
    """The two members of the link; a single one if all of its links are slow."""
    round_trip: float
    usual: float
    loss: float


@dataclass(slots=True)
class Links:
    rows: dict[MemberId, dict[MemberId, Row]] = field(default_factory=dict)
    """The link from each observing member to each observed one."""
    missing: set[Pair] = field(default_factory=set)
    """The pairs of an observing member and one that it cannot reach."""
    reported: dict[Pair, Cut] = field(default_factory=dict)
    """The reported broken links."""
    slow: dict[tuple[MemberId, ...], Slow] = field(default_factory=dict)
    """The reported slow links."""
    doubts: dict[tuple[MemberId, ...], int] = field(default_factory=dict)
    """The number of consecutive looks at which a link was slow."""
    usual: float = 0.0
    """The lower quartile of the links' round trip times in seconds."""
    slow_at: float = 0.0
    """The moment at which slow links are looked for again."""
    asked_at: float = float("-inf")
    """The moment at which many members were ordered to probe."""
    asked: dict[int, Pair] = field(default_factory=dict)
    """The pending probes, by order number."""


def pair_of(one: MemberId, other: MemberId) -> Pair:
    return (one, other) if one <= other else (other, one)


def heard_again(links: Links, member: MemberId, now: float) -> None:
    """Restarts the times for which a returned member was missing: it was cut off from all members before."""
    for observer, target in [pair for pair in links.missing if member in pair]:
        row = links.rows[observer][target]
        row.missing_since = row.noted_at = now


def is_undecided(links: Links, now: float) -> bool:
    """Whether it is still open if two members cannot reach each other."""
    if links.asked and now - links.asked_at < ANSWERED_WITHIN:
        return True
    rows = ((pair, links.rows.get(pair[0], {}).get(pair[1])) for pair in links.missing)
    return any(row is not None and now - row.noted_at < UNDECIDED and pair_of(*pair) not in links.reported
               for pair, row in rows)  # fmt: skip
