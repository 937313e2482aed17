"""Counts and histograms that only metrics show; no decision reads them.

Each mapping has at most as many keys as its constant says. What exceeds that is counted under OTHER.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from outrider.master.core.state.durability import Moment, durable
from outrider.master.core.state.generation import Fault

STEP_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The upper bounds of the buckets of step times in seconds."""
BOUNDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""The upper bounds of the buckets of all other durations in seconds."""
MOST_KINDS = 12
"""The number of fault kinds that have histograms of their own."""
MOST_NODES = 64
"""The number of pairs of a node and a fault kind that are counted apart."""
OTHER = "other"


@dataclass(slots=True)
class Histogram:
    """The number of durations by bucket, and their sum."""

    counts: list[int] = durable(list)
    """By bucket, not cumulated; the last one is above all bounds. Empty before the first duration."""
    total: float = durable(0.0)

    def observe(self, seconds: float, bounds: tuple[float, ...], times: int = 1) -> None:
        """Counts a duration; `times`: of so many equal ones."""
        if not 0 <= seconds < math.inf:  # a member may send anything
            return
        if len(self.counts) != len(bounds) + 1:  # also what a release with other buckets has left
            self.counts, self.total = [0] * (len(bounds) + 1), 0.0
        self.counts[bisect_left(bounds, seconds)] += times
        self.total = round(self.total + seconds * times, 6)


@dataclass(slots=True)
class Counters:
    events: dict[str, int] = durable(dict)
    """The number of Events by kind."""
    steps: Histogram = durable(Histogram)
    """The seconds of each new step, without the first one of a generation."""
    faults: dict[str, Histogram] = durable(dict)
    """The seconds lost by a fault, by kind."""
    stages: dict[str, dict[str, Histogram]] = durable(dict)
    """The seconds of the stages of recoveries, by the fault's kind and the stage."""
    checkpoints: dict[str, Histogram] = durable(dict)
    """The seconds of operations on checkpoints, by operation."""
    incidents: dict[str, dict[str, int]] = durable(dict)
    """The number of faults for which a node is suspect, by node and kind."""
    saved_at: Moment | None = durable(None)
    """The moment at which the newest checkpoint was finished."""

    def note_event(self, kind: str) -> None:
        self.events[kind] = self.events.get(kind, 0) + 1

    def note_steps(self, seconds: float, steps: int) -> None:
        """Notes so many new steps, which took so many seconds together."""
        self.steps.observe(max(0.0, seconds) / steps, STEP_BOUNDS, steps)

    def note_checkpoint(self, operation: str, seconds: float) -> None:
        self.checkpoints.setdefault(operation, Histogram()).observe(seconds, BOUNDS)

    def note_fault(self, fault: Fault) -> None:
        """Notes a fault whose root cause is final, because training continues or the job is over."""
        if fault.seconds_lost is not None:
            kind = fault.kind if fault.kind in self.faults or len(self.faults) < MOST_KINDS else OTHER
            self.faults.setdefault(kind, Histogram()).observe(fault.seconds_lost, BOUNDS)
            for stage, seconds in fault.stages.items():
                self.stages.setdefault(kind, {}).setdefault(stage, Histogram()).observe(seconds, BOUNDS)
        if fault.node:
            pairs = sum(map(len, self.incidents.values()))
            is_known = pairs < MOST_NODES or fault.kind in self.incidents.get(fault.node, ())
            kinds = self.incidents.setdefault(fault.node if is_known else OTHER, {})
            kinds[fault.kind] = kinds.get(fault.kind, 0) + 1
