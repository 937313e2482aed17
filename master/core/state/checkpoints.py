"""What is known of checkpoints and of the data, beyond one generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from outrider.master.core.state.durability import durable, transient


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

    replicated_step: int | None = transient(None)
    """The newest step that all ranks of a world had in memory."""
    samples_repeated: int = durable(0, "data", shared=True)
    data_notes: list[DataNote] = durable(list, "data", shared=True)
    stop_by: float | None = transient(None)
    """When the platform ends its members by itself, if it does."""
