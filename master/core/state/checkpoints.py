"""What is known of checkpoints and of the data, beyond one generation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class DataNote(NamedTuple):
    """What a rank has told of its data (`checkpoints.data_position`)."""

    generation: str
    kind: str
    sentence: str
    samples: int
    """That are trained on again."""


@dataclass(slots=True)
class Checkpoints:
    """What is known of checkpoints and of the data, beyond one generation."""

    kept_in_memory: int | None = None
    """The newest step that all ranks of a world had in memory."""
    data_notes: list[DataNote] = field(default_factory=list)
    samples_repeated: int = 0
    stop_by: float | None = None
    """When the platform ends its members by itself, if it does."""
