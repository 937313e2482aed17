"""The orders that start and stop a generation, and the answers of members."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import NO_GENERATION, Generation, JobName, OrderId, RankIndex, Role
from outrider.wire.messages.checkpoints import Copy
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.report import Spent
from outrider.wire.messages.text_limits import Address, Json, Path, Pattern, Print, Sentences, Traceback


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """How one worker process ended. `code` is its exit status (0-255), or None if `signal` ended it."""

    local_rank: int
    pid: int
    code: int | None
    signal: int | None = None
    out_of_memory: bool = False
    """Whether SIGKILL ended it and the container's oom_kill counter grew."""
    age: float = 0.0
    step: int = 0
    """The absolute optimizer step (see `Report.step`) when it ended."""
    error_type: str = ""
    """The class of the exception as Python prints it; empty if there was none."""
    error_message: Sentences = ""
    error_frame: str = ""
    """The deepest frame of the exception, `file:line function`."""
    traceback: Traceback = ""
    """The traceback of the exception, at most 8 KiB."""
    in_import: bool = False
    """Whether it failed before the script's top level had finished and before the first step."""


MODES = {"T0": "fork", "T1": "relaunch"}
"""From `rung`, which hooks and sidecars send, to the supervision mode that users read: a template process forks the
ranks, or a launcher relaunches the command for each generation."""


@dataclass(frozen=True, slots=True)
class Ready:
    """No process of an older generation is alive here, and worker processes can be started. Repeated with a new port
    after every Stopped, and whenever a field changes."""

    port: int
    """A new free port outside the ephemeral range, for a rendezvous whose rank 0 is here."""
    nproc: int
    """The number of worker processes of this member."""
    rung: str
    """The supervision mode, as the first release named it: a key of `MODES`."""
    rung_reason: str
    trainer_pid: int = 0
    """The pid of the template or launcher."""
    after: Generation = NO_GENERATION
    """The last generation that was stopped here."""
    max_restarts: int | None = None
    """The limit that an inner launcher (torchrun) gives, if any; outrider's own flag takes precedence."""
    copies: tuple[Copy, ...] = ()
    """The complete checkpoints in this member's memory."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start the worker processes of a generation. O(1) bytes: each sidecar gets only its own ranks."""

    order: OrderId
    generation: Generation
    restart_count: int
    """The number of generations before this one."""
    master_addr: Address
    master_port: int
    group_rank: int
    group_world_size: int
    first_rank: int
    """The first global rank of this member, whose ranks are first_rank … first_rank + nproc - 1."""
    nproc: int
    world_size: int
    role: Role
    role_first_rank: int
    role_world_size: int
    rank_index: RankIndex
    max_restarts: int = 10
    job: JobName = JobName("")
    high_step: int = 0
    """The highest absolute step ever made; the first step above it is reported by Stepped."""
    saves: tuple[tuple[Path, int], ...] = ()
    """The newest checkpoints (path, absolute step), at most 16, from which the hooks know the step of a load."""
    reason: str = ""
    neighbours: tuple[Neighbour, ...] = ()
    """At most 3 other members of this generation; a member that reaches neither the master nor any of them is cut
    off."""
    patterns: tuple[Pattern, ...] = ()
    """Regular expressions to search for in the lines of the ranks' output; only if there are any, the ranks write into
    a pipe."""
    elastic_data: bool = False
    """Whether ranks resume their data at the position of the loaded checkpoint."""
    keep_batch_of: int = 0
    """The number of ranks in the job's first generation, whose global batch size is kept; 0: it is not kept."""
    tf_config: Json = ""
    """The variable TF_CONFIG for a member of a PS job, JSON with its cluster and task; empty for an all-reduce job."""
    worker_id: int = 0
    """The number in the name of a member of a PS job."""
    worker_num: int = 0
    """The number of members with the same role in a PS job."""
    begins_from: int = -1
    """The save of the checkpoint path that every member of this generation has in memory; -1 if there is none."""
    begins_in: Generation = NO_GENERATION
    """The generation that made this save; a version is the save and its generation."""
    prints: tuple[tuple[Print, int], ...] = ()
    """The newest fingerprints of checkpoints, at most 32, each with its step; they identify a file after a rename or a
    copy."""
    require_resume: bool = False
    """Whether the job fails if its script starts over; nothing is saved until this is decided."""


@dataclass(frozen=True, slots=True)
class Started:
    """Acknowledges Start: the worker processes exist."""

    order: OrderId
    generation: Generation
    pids: tuple[int, ...]
    """The pids of the worker processes, by local rank."""


@dataclass(frozen=True, slots=True)
class StartFailed:
    """Start has failed."""

    order: OrderId
    generation: Generation
    error: str


@dataclass(frozen=True, slots=True)
class Stepped:
    """The first step above `Start.high_step` was made here, which ends the lost time. Sent at once."""

    generation: Generation
    step: int
    age: float
    base: int = -1
    """As in RankProgress."""
    spent: Spent | None = None
    """As in Report, at about the moment of the step."""


@dataclass(frozen=True, slots=True)
class Exited:
    """Worker processes ended without a Stop. Sent at once."""

    generation: Generation
    exits: tuple[WorkerExit, ...]
    alive: int
    """The number of worker processes of the generation that are still alive here."""
    spent: Spent | None = None
    """As in Report, if the first rank is among them."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End every worker process of the generation, and of all lower ones."""

    order: OrderId
    generation: Generation
    grace: float = 0.2
    """Seconds between SIGTERM and SIGKILL if the script has no handler for SIGTERM."""
    handler_grace: float = 10.0
    """Seconds between SIGTERM and SIGKILL if the script has a handler for SIGTERM."""
    save_grace: float = 60.0
    """The most seconds that a rank inside a save gets to finish it first."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Acknowledges Stop: every process of the generation has been reaped, including DataLoader workers."""

    order: OrderId
    generation: Generation
    step: int = 0
    """The highest absolute step of its ranks."""
    step_age: float = 0.0
    killed: int = 0
    """The number of processes that had to be killed with SIGKILL."""
    spent: Spent | None = None
    """As in Report, at the end of the first rank."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Acknowledges an order that has no other answer."""

    order: OrderId
