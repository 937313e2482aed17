"""The windows of own times by which the ranks of a generation are compared."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from outrider.wire.ids import MemberId
from outrider.wire.messages.report import OwnTime

TIMES_THE_OTHERS = 1.3

LEAST_SHARE, LEAST = 0.05, 0.001
"""Of a step, and in seconds: less is not worth a word."""

REMEMBERED = 16
"""Windows from which is estimated by how much they differ beyond that."""

LEAST_FACTOR = 0.01

Key = tuple[MemberId, int]
"""A rank, by its member and local rank."""


@dataclass(frozen=True, slots=True)
class Lag:
    """One rank in one window: what it needs by itself a step, what the others need, and how much more of each part."""

    own: float
    others: float
    step: float
    first_step: int
    more: tuple[float, ...] = ()
    """By PARTS; only of a slow one."""
    level: float = 0.0
    """The logarithm of what it needs by itself, whatever the others need."""

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
    """A member that is slow now, or (`is_over`) that is no more."""

    member: MemberId
    local_rank: int
    pace: Lag
    """Means of its windows."""
    of_two: bool = False
    """There is only one other member: who is slow is relative."""
    is_over: bool = False


@dataclass(slots=True)
class Comparison:
    """The windows of one generation."""

    open: dict[int, dict[Key, OwnTime]] = field(default_factory=dict)
    """Not judged yet, by first step."""
    judged: int = -1
    reporters: frozenset[Key] = frozenset()
    """Who told the window that was judged last."""
    ahead: Counter[Key] = field(default_factory=Counter)
    """Windows running that a rank has left out, and told a later one."""
    aside: dict[Key, OwnTime] = field(default_factory=dict)
    """The newest windows of ranks that are not believed."""
    slow: dict[Key, list[Lag]] = field(default_factory=dict)
    """The slow windows running of ranks that have some."""
    last: dict[Key, float] = field(default_factory=dict)
    """The level of each rank that was not slow in the window before."""
    changes: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Of each of the newest windows: by how much that of the middle rank had changed."""
    fine: dict[MemberId, int] = field(default_factory=dict)
    """Windows running in which a named member was not slow."""
    named: dict[MemberId, Named] = field(default_factory=dict)
    pace: dict[MemberId, Lag] = field(default_factory=dict)
    """Of its slowest rank, in the window that was judged last."""
    sources: dict[MemberId, str] = field(default_factory=dict)
    problems: dict[MemberId, str] = field(default_factory=dict)
    """Why a member's windows are not judged."""
