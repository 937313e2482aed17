"""How far training has come, over all generations."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from outrider.wire.ids import NO_GENERATION, Generation


@dataclass(slots=True)
class Progress:
    """How far training has come, over all generations, and at what pace."""

    first_world: int = 0
    """Ranks of the job's first world; 0: there was none yet."""
    saves: dict[str, int] = field(default_factory=dict)
    """Newest checkpoints by path, oldest first."""
    prints: dict[str, int] = field(default_factory=dict)
    """Steps by the fingerprint of a checkpoint's file, oldest first; 0: of more than one step."""
    steps_repeated: int = 0
    """Of the worlds before."""
    first_step: int | None = None
    first_step_at: float | None = None
    high_step: int = 0
    high_step_at: float | None = None
    step_estimated: bool = False
    """Some of the steps may be repeated ones: it is not known where a world went on from."""
    high_step_generation: Generation = NO_GENERATION
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=101))
    seconds_lost: float = 0.0
