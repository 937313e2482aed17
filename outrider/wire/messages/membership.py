"""Messages with which a member connects to its master and leaves it."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import NO_GENERATION, Generation, JobName, MemberId, OrderId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import WorkerExit
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.report import Spent
from outrider.wire.messages.text_limits import Address, Sentences, Ticket, Token

PROTOCOL_VERSION = 1


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message on every connection: the member and what it runs, from which a new master rebuilds its
    state."""

    job: JobName
    member: MemberId
    uid: PodUid
    role: Role
    rank_index: RankIndex | None
    token: Token
    version: int = PROTOCOL_VERSION
    address: Address = "127.0.0.1"
    """The address at which other members reach this one."""
    probe_port: int = 0
    """The UDP port on which the sidecar answers probes of its peers."""
    running: Generation = NO_GENERATION
    """The generation whose worker processes are alive in this member."""
    group_rank: int | None = None
    highest: Generation = NO_GENERATION
    """The highest generation that this sidecar has ever received."""
    finished: bool = False
    """Whether all worker processes of `highest` ended with 0 here."""
    rung: str = ""
    """The supervision mode as in `Ready`, which a member with running worker processes does not send; empty if there is
    no trainer yet."""
    rung_reason: str = ""
    trainer_pid: int = 0
    ticket: Ticket = ""
    """The ticket from the last Welcome."""
    isolated: str = ""
    """Why this member itself has stopped, or is stopping, the worker processes of `highest`: it was cut off."""
    machine: str = ""
    """The id of the machine's kernel: members with the same one disturb each other, even if they are on different
    nodes; empty if it is not known."""
    memory_port: int = 0
    """The TCP port on which the sidecar sends replicas of checkpoints to other members; 0 if there is none."""
    memory_key: Ticket = ""
    """The key for requests to that port, known only to the master and the members that it gives the key."""
    offers: bool = False
    """Whether the script saves its state on request; `StateOffered` has the names."""
    term: int = 0
    """The highest term of a master that has welcomed this member; in a Hello from a master to an earlier one, its own
    term."""
    unsupervised: bool = False
    """Whether the command runs unsupervised for good: the member takes no orders and is in no generation."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answer to Hello."""

    term: int
    master: str = ""
    report_every: float = 1.0
    """Seconds between reports."""
    silent_after: float = 3.0
    ticket: Ticket = ""
    """The ticket for the next Hello, which replaces the token in a cluster and saves a request to the API server."""
    neighbours: tuple[Neighbour, ...] = ()
    """The neighbours as in Start, for a sidecar that started after the running generation; empty: no change."""
    stop_grace: float = 0.2
    """`grace` as in Stop, like the next two for a member that is cut off and stops by itself."""
    handler_grace: float = 10.0
    save_grace: float = 60.0
    hands_off: bool = False
    """Whether the job is only observed: without an order, this member does nothing to its worker processes."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The connection is refused; the reason says why and what can be done. The sidecar logs it and tries again after
    `retry_after` seconds, or ends if that is negative."""

    reason: Sentences
    retry_after: float = 2.0
    hands_off: bool = False
    """Whether the job is switched off: as in Welcome, until a master serves this member again."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The member must leave (SIGTERM, eviction) within `grace` seconds."""

    reason: str
    grace: float


@dataclass(frozen=True, slots=True)
class TrainerLost:
    """The template or launcher died with its worker processes. The container is being restarted or replaced."""

    reason: str
    generation: Generation = NO_GENERATION
    exits: tuple[WorkerExit, ...] = ()
    spent: Spent | None = None
    """What the first rank had spent its time on."""


@dataclass(frozen=True, slots=True)
class TrainerExited:
    """The trainer's container ended by itself with this exit code, outside of a generation: a command in mode relaunch
    ended before the first generation, or the script is not a training script."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The job has ended, or this member is no longer part of it: end the trainer's container with this exit code, then
    the sidecar."""

    order: OrderId
    exit_code: int
    reason: Sentences
    last_words: Sentences = ""
    """A line for the trainer's log and its container's termination message; empty if there is none."""
