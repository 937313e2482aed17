"""How far training has come, over all generations."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from outrider.master.core.state.durability import Moment, durable
from outrider.wire.ids import NO_GENERATION, Generation

PRINTS_SAVED, STEPS_SAVED = 64, 11


@dataclass(slots=True)
class Progress:
    """How far training has come, over all generations, and at what pace."""

    first_world: int = durable(0, "data", shared=True)
    """The world size of the job's first generation; 0 before it."""
    saves: dict[str, int] = durable(dict, rows=True)
    """The step of the newest checkpoint at each path, oldest first."""
    prints: dict[str, int] = durable(dict, rows=True, trim=lambda prints: dict(list(prints.items())[-PRINTS_SAVED:]))
    """The step for each fingerprint of a checkpoint's file, oldest first; 0 if it belongs to several steps."""
    steps_repeated: int = durable(0)
    """The number of steps repeated by earlier generations."""
    first_step: int | None = durable(None)
    high_step: int = durable(0)
    high_step_at: Moment | None = durable(None)
    step_estimated: bool = durable(False)
    """Whether counted steps may include repeated ones, because it is unknown where a generation resumed."""
    high_step_generation: Generation = durable(NO_GENERATION)
    step_seconds: deque[float] = durable(lambda: deque(maxlen=101), trim=lambda seconds: [*seconds][-STEPS_SAVED:])
    seconds_lost: float = durable(0.0, trim=lambda lost: round(lost, 3))
