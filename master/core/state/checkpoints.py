"""The state of checkpoints and of data positions beyond one generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from outrider.master.core.state.durability import durable, transient


class DataNote(NamedTuple):
    """A rank's report on its data (`checkpoints.data_position`)."""

    generation: str
    kind: str
    sentence: str
    samples: int
    """The number of samples that are trained on again."""


@dataclass(slots=True)
class Checkpoints:
    """The state of checkpoints and of data positions beyond one generation."""

    replicated_step: int | None = transient(None)
    """The newest step that all ranks of a generation had in memory."""
    samples_repeated: int = durable(0, "data", shared=True)
    data_notes: list[DataNote] = durable(list, "data", shared=True)
    stop_by: float | None = transient(None)
    """The moment at which the platform deletes the members by itself; None if it does not."""
