"""What was counted for the user's rules, and what they say of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.master.core.events import NodeSeen
from outrider.master.core.spec import Rule
from outrider.master.core.state.durability import Moment, durable, in_order, transient
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, PodUid


@dataclass(slots=True)
class Flag:
    """A rule of the user's holds for a node."""

    action: str
    why: str
    since: float = transient(float("-inf"))
    """Who was made before, and comes there, was on its way."""
    to_go: set[PodUid] = field(default_factory=set)
    """Pods that are to be replaced for it."""
    is_told: bool = transient(True)


@dataclass(slots=True)
class Rules:
    """What was counted for the user's rules (`faults.failure_policy`), and what they say of nodes now."""

    marked: dict[str, NodeSeen] = transient(dict)
    """Those with conditions or taints that a rule may name."""
    flags: dict[str, Flag] = durable(dict)
    """Those for which a rule of the user's holds."""
    hits: dict[tuple[Rule, str], list[Moment]] = durable(dict, rows=True, trim=in_order)
    """When a rule was met that is not followed each time, and by whom (`faults.failure_policy`)."""
    tried: dict[Rule, float] = transient(dict)
    """When a dry run was told."""
    holding: dict[tuple[str, Rule], bool] = durable(dict, rows=True, trim=in_order)
    """Rules that hold for a node, and whether they were met often enough when they began to."""
    judged: dict[tuple[MemberId, int], tuple[str, str]] = transient(dict)
    """What the rules say of ends of ranks, by local rank, in the generation `judged_of`."""
    judged_of: Generation = transient(NO_GENERATION)
    log_serials: dict[MemberId, int] = durable(dict)
    """Of the last LineMatched of each member."""
    dropped_patterns: set[str] = durable(set)
    """Those that are too slow, or cannot be read."""

    def drop(self, pattern: str) -> None:
        """No line is searched for it any more."""
        self.dropped_patterns.add(pattern)

    def forget(self, member: MemberId) -> None:
        """It is no more."""
        self.log_serials.pop(member, None)
