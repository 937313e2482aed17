"""How often something may be done: a count of uses of which one is forgotten per `decay` seconds without another."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.state.durability import Moment


@dataclass(slots=True)
class Budget:
    """So many uses; one comes back per `decay` seconds without a use."""

    used: int = 0
    since: Moment = 0.0


def left(budget: Budget, allowed: int, decay: float, now: float) -> int:
    """Uses that remain."""
    return allowed - max(0, budget.used - _regained(budget, decay, now))


def use(budget: Budget, decay: float, now: float) -> None:
    budget.used = max(0, budget.used - _regained(budget, decay, now)) + 1
    budget.since = now


def give_back(budget: Budget) -> None:
    """The last use turned out to be none."""
    budget.used = max(0, budget.used - 1)


def _regained(budget: Budget, decay: float, now: float) -> int:
    return int((now - budget.since) / decay) if decay > 0 and now > budget.since else 0
