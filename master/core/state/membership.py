"""The members that are connected, suspected, or strangers."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.master.core.state.crowd import Crowd
from outrider.wire.ids import MemberId


@dataclass(slots=True)
class Membership:
    """The members that are connected, suspected, or strangers."""

    sessions: dict[str, MemberId] = field(default_factory=dict)
    deaf_until: float = 0.0
    """The earliest moment from which silence counts: before it this master did not listen."""
    suspected: set[MemberId] = field(default_factory=set)
    """The suspected members."""
    crowd: Crowd = field(default_factory=Crowd)
    """The counts of present and silent members; all tasks of a PS job share one."""
    strangers: set[MemberId] = field(default_factory=set)
    unbound: set[MemberId] = field(default_factory=set)
    """The members whose command may start unsupervised (`unreached`)."""
    has_news_of_strangers: bool = False
    """Whether a stranger was found in this step."""
    in_the_way: str = ""
    """The sentence about members that block a generation, as in the status; empty if none do."""
    lost_a_stranger: bool = False
    """Whether a stranger that may have trained left or failed before it had finished."""
