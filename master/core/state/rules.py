"""The state of the user's rules: what was counted for them, and which nodes they match."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.master.core.events import NodeSeen
from outrider.master.core.spec import Rule
from outrider.master.core.state.durability import Moment, durable, in_order, transient
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, PodUid


@dataclass(slots=True)
class Flag:
    """A match of a user's rule with a node."""

    action: str
    why: str
    since: float = transient(float("-inf"))
    """When the rule matched; pods created earlier were already being scheduled."""
    to_go: set[PodUid] = field(default_factory=set)
    """The pods to be replaced because of the match."""
    is_told: bool = transient(True)


@dataclass(slots=True)
class Rules:
    """What was counted for the user's rules (`faults.failure_policy`), and the nodes that match them now."""

    marked: dict[str, NodeSeen] = transient(dict)
    """The nodes with conditions or taints that a rule may name."""
    flags: dict[str, Flag] = durable(dict)
    """The nodes that match a rule."""
    hits: dict[tuple[Rule, str], list[Moment]] = durable(dict, rows=True, trim=in_order)
    """The moments of matches of a rule that needs several, by rule and subject (`faults.failure_policy`)."""
    tried: dict[Rule, float] = transient(dict)
    """The moment of the last dry run reported for a rule."""
    holding: dict[tuple[str, Rule], bool] = durable(dict, rows=True, trim=in_order)
    """The rules that match a node, and whether each had enough matches when it began to."""
    judged: dict[tuple[MemberId, int], tuple[str, str]] = transient(dict)
    """The rules' verdicts on ends of ranks in the generation `judged_of`, by member and local rank."""
    judged_of: Generation = transient(NO_GENERATION)
    log_serials: dict[MemberId, int] = durable(dict)
    """The serial number of the last LineMatched of each member."""
    dropped_patterns: set[str] = durable(set)
    """The patterns that are too slow or invalid."""

    def drop(self, pattern: str) -> None:
        """Stops the search for a pattern."""
        self.dropped_patterns.add(pattern)

    def forget(self, member: MemberId) -> None:
        """Forgets a member that is gone."""
        self.log_serials.pop(member, None)
