"""Reports of ranks about their position in the data, and about the checkpoints that they load."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import Generation

DATA_KINDS = {
    "loaded": "DataPositionLoaded",
    "ignored": "DataPositionIgnored",
    "repeated": "SamplesRepeated",
    "not elastic": "ElasticDataUnavailable",
    "not written": "DataPositionNotWritten",
    "kept": "GlobalBatchPreserved",
    "not kept": "GlobalBatchNotPreserved",
    "unusable": "SavedStateUnusable",
    "state loaded": "CheckpointLoaded",
    "state not saved": "MemoryCheckpointFailed",
    "not atomic": "CheckpointsNotAtomic",
    "atomic": "CheckpointsAtomic",
    "overtaken": "StaleSaveDiscarded",
    "newer kept": "NewerCheckpointPreserved",
    "no room": "CheckpointNotSaved",
}
"""The words of a DataSaid, and the kinds of the events for them."""


@dataclass(frozen=True, slots=True)
class DataSaid:
    """What a rank has done about its position in the data or its batch size (`training_hooks/data/position.py`).
    Repeated after each Welcome until a newer generation starts."""

    generation: Generation
    rank: int
    word: str
    """A key of DATA_KINDS."""
    sentence: str
    """A message of at most 500 characters."""
    warning: bool = False
    samples: int = 0
    """The number of samples that are used again (`repeated`)."""
