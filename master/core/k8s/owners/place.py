"""A pod's place in its job, and what its annotations ask for: its injection depends on no more."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod belongs, and what its annotations ask of us."""

    job: str
    namespace: str
    role: str
    member: str = ""
    """Empty: the sidecar reads its id from the field `member_path` of its own pod."""
    rank_index: int | None = None
    """None: read from the pod's label, which a spare has not."""
    nproc: int | None = None
    script: str = ""
    pythonpath: str = ""
    per_rank: bool = False
    container: str = ""
    of_operator: bool = False
    """Its pods are the training operator's, which runs a job in a container of a fixed name."""
    max_restarts: int | None = None
    migration_dir: str = ""
    """Where the job's scripts save their state before planned moves."""
    checkpoint_memory: int = 0
    """Bytes in which the trainer keeps checkpoints."""
    checkpoint_path: str = ""
    """What is saved there is kept in them."""
    atomic_save: str = ""
    """What the hooks are told of it, empty: nothing."""
    member_path: str = "metadata.name"
    is_untrained: bool = False
    """It is known that no generation of the job was ever formed."""
    members: int | None = None
    """How many pods its job has, if it can have no other number; None where nobody could say it."""
    alone_after: float | None = None
    """Seconds after which the pod begins by itself; None: it waits for a master for ever."""

    @property
    def key(self) -> str:
        """The JobName of docs/contracts.md §8."""
        return f"{self.namespace}/{self.job}"
