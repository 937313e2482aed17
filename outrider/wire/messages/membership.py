"""How a member comes to its master, and how it goes."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.wire.ids import NO_GENERATION, Generation, JobName, MemberId, OrderId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import WorkerExit
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.text_limits import Address, Sentences, Ticket, Token

PROTOCOL_VERSION = 1


@dataclass(frozen=True, slots=True)
class Hello:
    """First on every connection: who this is and what runs now, so that a new master can rebuild its state."""

    job: JobName
    member: MemberId
    uid: PodUid
    role: Role
    rank_index: RankIndex | None
    token: Token
    version: int = PROTOCOL_VERSION
    address: Address = "127.0.0.1"
    """Where other members reach this one."""
    probe_port: int = 0
    """UDP port on which the sidecar answers its peers' probes."""
    running: Generation = NO_GENERATION
    """The generation whose worker processes are alive in this member now."""
    group_rank: int | None = None
    highest: Generation = NO_GENERATION
    """The highest generation this sidecar was ever told of."""
    finished: bool = False
    """All of its worker processes ended with 0 in `highest`."""
    rung: str = ""
    """As in `Ready`, which a member whose worker processes run does not say; empty where there is no trainer yet."""
    rung_reason: str = ""
    trainer_pid: int = 0
    ticket: Ticket = ""
    """What the last Welcome brought."""
    isolated: str = ""
    """Why this member itself has stopped, or is stopping, the worker processes of `highest`: it was cut off."""
    machine: str = ""
    """Of the kernel it runs on: members whose machine is one disturb each other, also where each has a node of its own;
    empty where nothing tells."""
    memory_port: int = 0
    """TCP port on which the sidecar gives copies of checkpoints to other members; 0: it has none."""
    memory_key: Ticket = ""
    """What those must know who ask there: only the master, and whom it tells."""
    offers: bool = False
    """The script in it saves its state when it is asked to: `StateOffered` says what."""
    term: int = 0
    """The highest of a master that has welcomed this member. Of a master that says Hello to an earlier one: its own."""
    unsupervised: bool = False
    """Its command runs as without us, for good: it takes no order, and is no member of any world."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answer to Hello."""

    term: int
    master: str = ""
    report_every: float = 1.0
    """Seconds between reports."""
    silent_after: float = 3.0
    ticket: Ticket = ""
    """For the next Hello, in place of the token (a cluster): it costs the API server no question."""
    neighbours: tuple[Neighbour, ...] = ()
    """As in Start, for a sidecar that is younger than the generation that runs here; empty: nothing is said of them."""
    stop_grace: float = 0.2
    """This and the next two: as in Stop, for a member that is cut off and stops by itself."""
    handler_grace: float = 10.0
    save_grace: float = 60.0
    hands_off: bool = False
    """The job is only observed: this member does nothing to its worker processes that nobody has ordered."""


@dataclass(frozen=True, slots=True)
class Refused:
    """This connection will not be served; the sentence says why and what may be done. The sidecar logs it, and tries
    again after `retry_after` seconds, or ends where that is negative."""

    reason: Sentences
    retry_after: float = 2.0
    hands_off: bool = False
    """The job is switched off: as in Welcome, until a master serves this member again."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The member was told to go (SIGTERM, eviction); it has `grace` seconds."""

    reason: str
    grace: float


@dataclass(frozen=True, slots=True)
class TrainerLost:
    """The template or launcher died, and with it its workers. The container is being restarted or replaced."""

    reason: str
    generation: Generation = NO_GENERATION
    exits: tuple[WorkerExit, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainerExited:
    """The trainer's container ended by itself with this exit code, outside any generation (a T1 command that ended
    before a world was formed, a script that is no training script)."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The job is over, or this member is no longer part of it: end the trainer's container with this exit code, then
    the sidecar."""

    order: OrderId
    exit_code: int
    reason: Sentences
    last_words: Sentences = ""
    """One line that the trainer's own log and its container's termination message say, where there is one."""
