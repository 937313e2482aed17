"""Who is connected, in doubt, or belongs to somebody else."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.master.core.state.crowd import Crowd
from outrider.wire.ids import MemberId


@dataclass(slots=True)
class Membership:
    """Who is connected, in doubt, or belongs to somebody else."""

    sessions: dict[str, MemberId] = field(default_factory=dict)
    deaf_until: float = 0.0
    """Silence counts from here at the earliest: we did not listen before."""
    doubted: set[MemberId] = field(default_factory=set)
    crowd: Crowd = field(default_factory=Crowd)
    """Who is not heard beside how many others; one of all seats, where this is one of a PS job."""
    strangers: set[MemberId] = field(default_factory=set)
    unbound: set[MemberId] = field(default_factory=set)
    """Who may begin by itself (`unreached`)."""
    has_news_of_strangers: bool = False
    """Some came in this step."""
    in_the_way: str = ""
    """The sentence about them in the status, where no generation forms beside them."""
    lost_a_stranger: bool = False
    """One that may have trained went, or failed, before it had finished."""
