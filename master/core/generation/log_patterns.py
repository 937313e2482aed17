"""What the ranks' output is searched for: the patterns of rules, and that of the job's numbers."""

from __future__ import annotations

from outrider.master.core.state.generation import Place
from outrider.master.core.state.job import State


def of(state: State, place: Place) -> tuple[str, ...]:
    """At this place of the world, each once."""
    rules = (rule.log_pattern for rule in state.spec.rules)
    wanted = (*rules, state.spec.metrics_pattern if place.first_rank == 0 else "")
    return tuple(
        dict.fromkeys(pattern for pattern in wanted if pattern and pattern not in state.rules.dropped_patterns)
    )
