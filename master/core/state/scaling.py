"""What a job that finds its own size has measured, and what lines of its log have said."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.master.core.state.durability import Deadline, Moment, durable, in_order, part, transient
from outrider.wire.ids import Generation

START = "Start"


class Rate(NamedTuple):
    """What a size has made. `error`: its relative standard error."""

    samples: float
    """A second."""
    error: float
    steps: int
    at: Moment


@dataclass(slots=True)
class Search:
    """What is known; all of it survives the master, in the job's status."""

    known: dict[int, Rate] = durable(dict, rows=True, trim=in_order)
    base: int = durable(0, "search", shared=True)
    """The size that the current one is tried against; 0: none."""
    changed: Moment = durable(0.0, "search", shared=True)
    settled: Moment | None = durable(None, "search", shared=True)
    """Since when no better size is looked for."""
    patience: float = durable(0.0, "search", shared=True)
    """Seconds from then to the next evaluation: twice as long after each that changed nothing."""
    aside: dict[int, Rate] = durable(dict, rows=True, trim=in_order)
    """What sizes made that an evaluation tries again."""
    odd: int = transient(0)
    """Windows running that differ from what this size made before."""


@dataclass(slots=True)
class Meter:
    generation: Generation
    of_lines: bool = False
    """Of lines of the log, not of reports."""
    first: int | None = None
    """The first step seen."""
    before: tuple[float, float, int] | None = None
    """Step, when it ended, samples so far."""
    batch: float = 0.0
    """Samples that a rank's step had in the last window; 0: unknown."""
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
    """The size before this one."""
    by_hand: str = durable("", "told", shared=True)
    """Why nothing is decided here, where that is so."""
    room: int | None = durable(None, "room", shared=True)
    """There was none for more members than that."""
    room_at: Deadline | None = durable(None, "room", shared=True)
    """When it is asked for again."""
    no_room: int = durable(0, "room", shared=True)
    """How often."""
    batch: float = durable(0.0, "noise", shared=True)
    """Samples in a member's part of a step; 0: unknown."""
    noise: deque[float] = durable(lambda: deque(maxlen=NOISES), "noise", rest=True)
    """What lines of the log said last of the gradient noise."""
    due_at: float | None = transient(None)
    """When the schedule says another size."""
    seen: int | None = durable(None, "job", shared=True)
    """The size that the ElasticJob had when it was read last."""
    written: set[int] = durable(set, "job", rest=True)
    """Sizes that were written into the ElasticJob and have not been read there yet."""
    trail: deque[tuple[Moment, int, str]] = durable(lambda: deque(maxlen=TRAIL))
    """When, which size, why."""


@dataclass(slots=True)
class Metrics:
    values: dict[str, float] = durable(dict)
    line: str = durable("")
    """The newest that has fitted."""
    at: Moment | None = durable(None)
    lines: int = durable(0)
    problem: str = durable("")
    told: set[str] = transient(set)
    """Groups of which it was said that they are no numbers."""
