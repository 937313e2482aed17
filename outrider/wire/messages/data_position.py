"""What ranks say of their place in the data, and of the checkpoints that they load."""

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
"""The words of a DataSaid, and what they are called in events."""


@dataclass(frozen=True, slots=True)
class DataSaid:
    """What a rank has done about its place in the data, or about its batch size (`training_hooks/data/position.py`).
    Said again after each Welcome until a newer generation starts."""

    generation: Generation
    rank: int
    word: str
    """One of DATA_KINDS."""
    sentence: str
    """At most 500 characters."""
    warning: bool = False
    samples: int = 0
    """That are trained on again (`repeated`)."""
