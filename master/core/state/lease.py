"""The state of this master's Lease."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.master.core.state.occurrences import FailMember
from outrider.wire.ids import MemberId


@dataclass(slots=True)
class LeaseState:
    """Whether this master holds its Lease, and what it puts off until then (`membership.past_lease`)."""

    lapsed: bool = False
    """Whether the Lease is lost."""
    outranked: int = 0
    """The highest term known to any member."""
    put_off: dict[MemberId, FailMember] = field(default_factory=dict)
    """The members that the master will order to fail once it holds the Lease again."""
