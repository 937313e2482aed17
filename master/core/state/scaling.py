"""The state of autoscaling: measured throughputs, and metrics from the log."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.master.core.state.durability import Deadline, Moment, durable, in_order, part, transient
from outrider.wire.ids import Generation

START = "Start"


class Rate(NamedTuple):
    """The throughput of a size; `error` is its relative standard error."""

    samples: float
    """The samples per second."""
    error: float
    steps: int
    at: Moment


@dataclass(slots=True)
class Search:
    """The search for the best size; all of it but `odd` survives the master in the job's status."""

    known: dict[int, Rate] = durable(dict, rows=True, trim=in_order)
    base: int = durable(0, "search", shared=True)
    """The size with which the current one is compared; 0: none."""
    changed: Moment = durable(0.0, "search", shared=True)
    settled: Moment | None = durable(None, "search", shared=True)
    """The moment since which no better size is searched for; None during a search."""
    patience: float = durable(0.0, "search", shared=True)
    """Seconds from `settled` to the next evaluation: doubled after each evaluation that changed nothing."""
    aside: dict[int, Rate] = durable(dict, rows=True, trim=in_order)
    """The earlier throughputs of sizes that an evaluation tries again."""
    odd: int = transient(0)
    """The number of consecutive windows that differ from the known throughput of this size."""


@dataclass(slots=True)
class Meter:
    generation: Generation
    of_lines: bool = False
    """Whether it measures lines of the log instead of reports."""
    first: int | None = None
    """The first step seen."""
    before: tuple[float, float, int] | None = None
    """The last step, the moment of its end, and the samples so far."""
    batch: float = 0.0
    """The samples in a rank's step in the last window; 0: unknown."""
    steps: int = 0
    step_seconds: list[float] = field(default_factory=list)
    step_samples: list[float] = field(default_factory=list)


TRAIL = 16

NOISES = 21


@dataclass(slots=True)
class Scaling:
    search: Search = part(Search)
    began: Moment | None = durable(None)
    meter: Meter | None = transient(None)
    condition: str = durable(START, "told", shared=True)
    message: str = durable("nothing is measured yet", "told", shared=True)
    last: int | None = durable(None, "told", shared=True)
    """The previous size; None before the first change."""
    by_hand: str = durable("", "told", shared=True)
    """Why autoscaling decides nothing; empty if it does."""
    room: int | None = durable(None, "room", shared=True)
    """The largest number of members for which there was room; None if no limit is known."""
    room_at: Deadline | None = durable(None, "room", shared=True)
    """The moment at which more room is requested again; None if it is not."""
    no_room: int = durable(0, "room", shared=True)
    """The number of times that the cluster lacked room."""
    batch: float = durable(0.0, "noise", shared=True)
    """The samples in a member's part of a step; 0: unknown."""
    noise: deque[float] = durable(lambda: deque(maxlen=NOISES), "noise", rest=True)
    """The newest values of the gradient noise from the log."""
    due_at: float | None = transient(None)
    """The moment at which the schedule changes the size; None without a schedule."""
    seen: int | None = durable(None, "job", shared=True)
    """The size of the ElasticJob when it was last read."""
    written: set[int] = durable(set, "job", rest=True)
    """The sizes that were written into the ElasticJob and not read from it yet."""
    trail: deque[tuple[Moment, int, str]] = durable(lambda: deque(maxlen=TRAIL))
    """The newest decisions: the moment, the size and the reason of each."""


@dataclass(slots=True)
class Metrics:
    values: dict[str, float] = durable(dict)
    line: str = durable("")
    """The newest line that matched."""
    at: Moment | None = durable(None)
    lines: int = durable(0)
    problem: str = durable("")
    reported: set[str] = transient(set)
    """The groups of the pattern whose invalid values were reported."""
