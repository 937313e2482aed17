"""The patterns that ranks' output is searched for: those of rules, and that of the job's metrics."""

from __future__ import annotations

from outrider.master.core.state.generation import Place
from outrider.master.core.state.job import State


def of(state: State, place: Place) -> tuple[str, ...]:
    """The patterns for one member of the generation, each once."""
    rules = (rule.log_pattern for rule in state.spec.rules)
    patterns = (*rules, state.spec.metrics_pattern if place.first_rank == 0 else "")
    return tuple(
        dict.fromkeys(pattern for pattern in patterns if pattern and pattern not in state.rules.dropped_patterns)
    )
