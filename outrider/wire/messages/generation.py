"""The orders that begin and end a generation, and what a member answers."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import NO_GENERATION, Generation, JobName, OrderId, RankIndex, Role
from outrider.wire.messages.checkpoints import Copy
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.text_limits import Address, Json, Path, Pattern, Print, Sentences, Traceback


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """How one worker process ended. `code` is an exit status (0-255), or None where `signal` ended it."""

    local_rank: int
    pid: int
    code: int | None
    signal: int | None = None
    out_of_memory: bool = False
    """SIGKILL, and the container's oom_kill counter grew."""
    age: float = 0.0
    step: int = 0
    """Optimizer steps counted in absolute terms (see `Report.step`) when it ended."""
    error_type: str = ""
    """The exception's class as Python prints it, `""` where there was none."""
    error_message: Sentences = ""
    error_frame: str = ""
    """The deepest frame, `file:line function`."""
    traceback: Traceback = ""
    """At most 8 KiB."""
    in_import: bool = False
    """It failed before its script's top level had run to an end, and before the first step."""


MODES = {"T0": "fork", "T1": "relaunch"}
"""From `rung`, which hooks and sidecars send, to the supervision mode that users read: a template process forks the
ranks, or a launcher starts the command again for each generation."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Nothing of an older generation is alive here, and worker processes can be started. Repeated with a new port
    after every Stopped, and whenever what it says changes."""

    port: int
    """A fresh free port outside the ephemeral range, for a rendezvous whose rank 0 is here."""
    nproc: int
    """Worker processes this member runs."""
    rung: str
    """The supervision mode, as the first release named it: a key of `MODES`."""
    rung_reason: str
    trainer_pid: int = 0
    """The template's or launcher's pid."""
    after: Generation = NO_GENERATION
    """The last generation that was stopped here."""
    max_restarts: int | None = None
    """What an inner launcher (torchrun) asked for, where it did; outrider's own flag wins."""
    copies: tuple[Copy, ...] = ()
    """The checkpoints that are whole in this member's memory."""


@dataclass(frozen=True, slots=True)
class Start:
    """Fork the worker processes of a generation. O(1) bytes: each sidecar learns its own ranks only."""

    order: OrderId
    generation: Generation
    restart_count: int
    """Generations before this one."""
    master_addr: Address
    master_port: int
    group_rank: int
    group_world_size: int
    first_rank: int
    """Global ranks here: first_rank … first_rank + nproc - 1."""
    nproc: int
    world_size: int
    role: Role
    role_first_rank: int
    role_world_size: int
    rank_index: RankIndex
    max_restarts: int = 10
    job: JobName = JobName("")
    high_step: int = 0
    """The highest absolute step ever made; Stepped is due when one beyond it is made."""
    saves: tuple[tuple[Path, int], ...] = ()
    """The newest checkpoints (path, absolute step), at most 16: they tell the hooks which step a load resumes."""
    reason: str = ""
    neighbours: tuple[Neighbour, ...] = ()
    """At most 3 other members of this world: who reaches neither the master nor any of them is cut off."""
    patterns: tuple[Pattern, ...] = ()
    """Regular expressions that the lines of the ranks' output are searched for; where there is one, and only there, the
    ranks write into a pipe."""
    elastic_data: bool = False
    """Ranks go on in their data where the checkpoint that they load was saved."""
    keep_batch_of: int = 0
    """Ranks of the job's first world, whose global batch is to be kept; 0: it is not."""
    tf_config: Json = ""
    """The variable TF_CONFIG of a member of a PS job: JSON, its cluster and its task. Empty: an all-reduce job."""
    worker_id: int = 0
    """Of a member of a PS job: the number in its name."""
    worker_num: int = 0
    """Members of its role, in a PS job."""
    begins_from: int = -1
    """The save of the marked path that every member of this world has in memory; -1: there is none."""
    begins_in: Generation = NO_GENERATION
    """The generation that made it: a version is both."""
    prints: tuple[tuple[Print, int], ...] = ()
    """The newest fingerprints of checkpoints, at most 32, each with its step: a file is known by them behind a rename
    or a copy."""
    require_resume: bool = False
    """The job ends where its script starts over: until that is decided nothing is saved."""


@dataclass(frozen=True, slots=True)
class Started:
    """Acknowledges Start: the worker processes exist."""

    order: OrderId
    generation: Generation
    pids: tuple[int, ...]
    """By local rank."""


@dataclass(frozen=True, slots=True)
class StartFailed:
    """Start could not be done."""

    order: OrderId
    generation: Generation
    error: str


@dataclass(frozen=True, slots=True)
class Stepped:
    """The first step beyond `Start.high_step` has been made here: the lost time is over. Sent at once."""

    generation: Generation
    step: int
    age: float
    base: int = -1
    """As in RankProgress."""


@dataclass(frozen=True, slots=True)
class Exited:
    """Worker processes that ended without having been told to. Sent at once."""

    generation: Generation
    exits: tuple[WorkerExit, ...]
    alive: int
    """Worker processes of the generation still alive here."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End every worker process of the generation, and of all lower ones."""

    order: OrderId
    generation: Generation
    grace: float = 0.2
    """Seconds between SIGTERM and SIGKILL where the script handles no SIGTERM."""
    handler_grace: float = 10.0
    """The same where it does."""
    save_grace: float = 60.0
    """At most this long a rank inside a save is let finish first."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Acknowledges Stop: every process of the generation has been reaped, its DataLoader workers too."""

    order: OrderId
    generation: Generation
    step: int = 0
    """The highest absolute step of its ranks."""
    step_age: float = 0.0
    killed: int = 0
    """How many had to be killed with SIGKILL."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An order that has no answer of its own arrived."""

    order: OrderId
