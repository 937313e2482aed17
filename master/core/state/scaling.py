"""What a job that finds its own size has measured, and what lines of its log have said."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.wire.ids import Generation

START = "Start"


class Rate(NamedTuple):
    """What a size has made. `error`: its relative standard error."""

    samples: float
    """A second."""
    error: float
    steps: int
    at: float


@dataclass(slots=True)
class Search:
    """What is known; all of it survives the master, in the job's status."""

    known: dict[int, Rate] = field(default_factory=dict)
    base: int = 0
    """The size that the current one is tried against; 0: none."""
    changed: float = 0.0
    settled: float | None = None
    """Since when no better size is looked for."""
    patience: float = 0.0
    """Seconds from then to the next evaluation: twice as long after each that changed nothing."""
    aside: dict[int, Rate] = field(default_factory=dict)
    """What sizes made that an evaluation tries again."""
    odd: int = 0
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
    search: Search = field(default_factory=Search)
    began: float | None = None
    meter: Meter | None = None
    condition: str = START
    message: str = "nothing is measured yet"
    last: int | None = None
    """The size before this one."""
    by_hand: str = ""
    """Why nothing is decided here, where that is so."""
    room: int | None = None
    """There was none for more members than that."""
    room_at: float | None = None
    """When it is asked for again."""
    no_room: int = 0
    """How often."""
    batch: float = 0.0
    """Samples in a member's part of a step; 0: unknown."""
    noise: deque[float] = field(default_factory=lambda: deque(maxlen=NOISES))
    """What lines of the log said last of the gradient noise."""
    due_at: float | None = None
    """When the schedule says another size."""
    seen: int | None = None
    """The size that the ElasticJob had when it was read last."""
    written: set[int] = field(default_factory=set)
    """Sizes that were written into the ElasticJob and have not been read there yet."""
    trail: deque[tuple[float, int, str]] = field(default_factory=lambda: deque(maxlen=TRAIL))
    """When, which size, why."""


@dataclass(slots=True)
class Metrics:
    values: dict[str, float] = field(default_factory=dict)
    line: str = ""
    """The newest that has fitted."""
    at: float | None = None
    lines: int = 0
    problem: str = ""
    told: set[str] = field(default_factory=set)
    """Groups of which it was said that they are no numbers."""
