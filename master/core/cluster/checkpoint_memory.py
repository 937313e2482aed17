"""`checkpointMemory`: how much memory of the trainer's a member keeps checkpoints in, checked before anything starts.

The hooks fill it at the start, so that it is the trainer's container that pays for it and a shortage is an error then;
the volume that it lies in has to be larger by it.
"""

from __future__ import annotations

from master.core.cluster import containers, quantities
from master.core.cluster.names import CHECKPOINT_MEMORY, Document

VARIABLE = "OUTRIDER_CHECKPOINT_MEMORY"
LEAST = 1 << 20
MAY_BE = "it may be 512Mi, 2Gi or a number of bytes, from 1Mi on"


def parsed(amount: object) -> int:
    """Bytes. Raises ValueError."""
    size = quantities.parsed(amount)
    if size is None or size < LEAST:
        raise ValueError(f"{amount!r} is no amount of memory for checkpoints; {MAY_BE}")
    return size


def objection(size: int, container: Document) -> str:
    """Why this container cannot give so much, "" where it can."""
    name = container.get("name", "")
    limit = containers.memory_limit({"spec": {"containers": [container]}}, name)
    if not limit or size < limit:
        return ""
    return (
        f"annotation {CHECKPOINT_MEMORY} (checkpointMemory of an ElasticJob): {quantities.written(size)} is all the "
        f"memory that the trainer's container {name} may use ({quantities.written(limit)}), and its checkpoints are in "
        f"it; ask for less, or raise resources.limits.memory"
    )


def volume_size(least: str, size: int) -> str:
    """Of the pod's volume, with the checkpoints in it."""
    return quantities.written((quantities.parsed(least) or 0) + size) if size else least
