"""Budgets: counts of uses, of which one is regained per `decay` seconds without another use."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.state.durability import Moment


@dataclass(slots=True)
class Budget:
    """The number of uses, and when the last one was; one is regained per `decay` seconds without a use."""

    used: int = 0
    since: Moment = 0.0


def left(budget: Budget, allowed: int, decay: float, now: float) -> int:
    """The number of uses that remain."""
    return allowed - max(0, budget.used - _regained(budget, decay, now))


def use(budget: Budget, decay: float, now: float) -> None:
    budget.used = max(0, budget.used - _regained(budget, decay, now)) + 1
    budget.since = now


def give_back(budget: Budget) -> None:
    """Takes back the last use."""
    budget.used = max(0, budget.used - 1)


def _regained(budget: Budget, decay: float, now: float) -> int:
    return int((now - budget.since) / decay) if decay > 0 and now > budget.since else 0
