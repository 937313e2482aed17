"""A pod's place in its job and the requests in its annotations: all that its injection depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a pod in its job, and the requests in its annotations."""

    job: str
    namespace: str
    role: str
    member: str = ""
    """Id of the member; empty if the sidecar reads it from the field `member_path` of its own pod."""
    rank_index: int | None = None
    """Rank index; None if the sidecar reads it from the pod's label, which a spare does not have."""
    nproc: int | None = None
    script: str = ""
    pythonpath: str = ""
    per_rank: bool = False
    container: str = ""
    of_operator: bool = False
    """Whether the training operator creates the pod, which runs the job in a container with a fixed name."""
    max_restarts: int | None = None
    migration_dir: str = ""
    """Directory for the state that scripts save before planned moves."""
    checkpoint_memory: int = 0
    """Size of the memory for in-memory checkpoints in bytes."""
    checkpoint_path: str = ""
    """File whose saves go to that memory."""
    atomic_save: str = ""
    """Value of OUTRIDER_ATOMIC_SAVE for the hooks; empty if it is not set."""
    member_path: str = "metadata.name"
    """Field of the pod with the member's id."""
    is_untrained: bool = False
    """Whether it is known that no generation of the job was ever formed."""
    members: int | None = None
    """Number of pods of the job if it is fixed; None if it is not fixed or unknown."""
    alone_after: float | None = None
    """Seconds after which the pod starts without a master; None if it waits for a master for ever."""

    @property
    def key(self) -> str:
        """The JobName of docs/contracts.md §8."""
        return f"{self.namespace}/{self.job}"
