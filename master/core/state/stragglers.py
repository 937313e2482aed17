"""The state of straggler detection: the windows in which the own times of ranks are compared."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from outrider.wire.ids import MemberId
from outrider.wire.messages.report import OwnTime

TIMES_THE_OTHERS = 1.3

LEAST_SHARE, LEAST = 0.05, 0.001
"""The least excess that is reported, as a share of a step and in seconds."""

REMEMBERED = 16
"""The number of windows from which the usual variation is estimated."""

LEAST_FACTOR = 0.01

Key = tuple[MemberId, int]
"""A rank, by its member and local rank."""


@dataclass(frozen=True, slots=True)
class Lag:
    """One rank in one window: its own time of a step, that of the others, and the excess of each part."""

    own: float
    others: float
    step: float
    first_step: int
    more: tuple[float, ...] = ()
    """The excess of each of PARTS, for a slow rank only."""
    level: float = 0.0
    """The logarithm of the rank's own time, independent of the others."""

    @property
    def excess(self) -> float:
        return self.own - self.others

    @property
    def factor(self) -> float:
        return max(self.own / self.others, LEAST_FACTOR)

    @property
    def is_slow(self) -> bool:
        return self.factor > TIMES_THE_OTHERS and self.excess >= max(LEAST, LEAST_SHARE * self.step)


@dataclass(frozen=True, slots=True)
class Named:
    """A member that is a straggler now, or (`is_over`) no longer is."""

    member: MemberId
    local_rank: int
    pace: Lag
    """The means over its windows."""
    of_two: bool = False
    """Whether there is only one other member, so that either of them may be the odd one."""
    is_over: bool = False


@dataclass(slots=True)
class Comparison:
    """The windows of one generation and the stragglers found in them."""

    open: dict[int, dict[Key, OwnTime]] = field(default_factory=dict)
    """The windows that are not judged yet, by first step."""
    judged: int = -1
    reporters: frozenset[Key] = frozenset()
    """The ranks that reported the window judged last."""
    ahead: Counter[Key] = field(default_factory=Counter)
    """The number of consecutive windows for which a rank reported a later window instead."""
    aside: dict[Key, OwnTime] = field(default_factory=dict)
    """The newest windows of ranks whose windows do not count."""
    slow: dict[Key, list[Lag]] = field(default_factory=dict)
    """The consecutive slow windows of each slow rank."""
    last: dict[Key, float] = field(default_factory=dict)
    """The level of each rank that was not slow in the previous window."""
    changes: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """The median change of the ranks' levels in each of the newest windows."""
    fine: dict[MemberId, int] = field(default_factory=dict)
    """The number of consecutive windows in which a reported straggler was not slow."""
    named: dict[MemberId, Named] = field(default_factory=dict)
    pace: dict[MemberId, Lag] = field(default_factory=dict)
    """The lag of each member's slowest rank in the window judged last."""
    cost: float = 0.0
    """The share of a step by which the slowest slow rank held up all, in the window judged last."""
    sources: dict[MemberId, str] = field(default_factory=dict)
    problems: dict[MemberId, str] = field(default_factory=dict)
    """The reason why a member's windows are not judged."""
