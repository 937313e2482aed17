"""Whether this master holds its Lease."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.master.core.state.occurrences import FailMember
from outrider.wire.ids import MemberId


@dataclass(slots=True)
class LeaseState:
    """Whether this master holds its Lease (`membership.past_lease`)."""

    lapsed: bool = False
    """The Lease is not renewed (`membership.past_lease`)."""
    outranked: int = 0
    """The highest term of which a member has heard."""
    put_off: dict[MemberId, FailMember] = field(default_factory=dict)
    """Members that are to fail, by our word, once the Lease is held again."""
