"""Whether this master holds its Lease."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LeaseState:
    """Whether this master holds its Lease (`membership.past_lease`)."""

    lapsed: bool = False
    """The Lease is not renewed (`membership.past_lease`)."""
    outranked: int = 0
    """The highest term of which a member has heard."""
