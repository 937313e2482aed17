"""How members find each other, as they said last: what `network.link_health` judges."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.wire.ids import MemberId

ANSWERED_WITHIN = 1.0

UNDECIDED = 6.0
"""Seconds after which one that was missed is found again, or known to be cut off from whoever missed it."""

Pair = tuple[MemberId, MemberId]


@dataclass(slots=True)
class Row:
    """How one member finds another, as it said last."""

    at: float
    round_trip: float = 0.0
    lost: int = 0
    sent: int = 0
    missing_since: float | None = None
    noted_at: float = 0.0
    """When the master heard first that it is missing."""
    was_found: bool = False
    """It has answered this member before."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Two members that do not find each other, by name; where it is one way only, `first` does not find `second`."""

    first: MemberId
    second: MemberId
    since: float
    is_both: bool

    @property
    def pair(self) -> Pair:
        return pair_of(self.first, self.second)


@dataclass(frozen=True, slots=True)
class Slow:
    """A link, or all links of a member, that are much slower than the others', or lose much."""

    members: tuple[MemberId, ...]
    """One where all of its links are so."""
    round_trip: float
    usual: float
    loss: float


@dataclass(slots=True)
class Links:
    rows: dict[MemberId, dict[MemberId, Row]] = field(default_factory=dict)
    """By who looks, then by whom it looks at."""
    missing: set[Pair] = field(default_factory=set)
    """Those that do not find one: who looks, and at whom."""
    told: dict[Pair, Cut] = field(default_factory=dict)
    slow: dict[tuple[MemberId, ...], Slow] = field(default_factory=dict)
    """As told."""
    doubts: dict[tuple[MemberId, ...], int] = field(default_factory=dict)
    """How many looks running a link was slow."""
    usual: float = 0.0
    """Seconds of the round trip over the link that a quarter of the others are faster than."""
    slow_at: float = 0.0
    """When slow links are looked for again."""
    asked_at: float = float("-inf")
    """When many were asked at once."""
    asked: dict[int, Pair] = field(default_factory=dict)
    """Questions on their way (order numbers)."""


def pair_of(one: MemberId, other: MemberId) -> Pair:
    return (one, other) if one <= other else (other, one)


def heard_again(links: Links, member: MemberId, now: float) -> None:
    """It was cut off from everybody and is back: whether others miss it is to be seen from now on."""
    for observer, target in [pair for pair in links.missing if member in pair]:
        row = links.rows[observer][target]
        row.missing_since = row.noted_at = now


def is_undecided(links: Links, now: float) -> bool:
    """Somebody is missing, or may be, and it is not known yet whether the two cannot see each other."""
    if links.asked and now - links.asked_at < ANSWERED_WITHIN:
        return True
    rows = ((pair, links.rows.get(pair[0], {}).get(pair[1])) for pair in links.missing)
    return any(row is not None and now - row.noted_at < UNDECIDED and pair_of(*pair) not in links.told
               for pair, row in rows)  # fmt: skip
