"""What can happen in a member, as the sidecar's core sees it: past tense, frozen, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.sidecar.core.actions import Action
from outrider.wire.ids import Generation, JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.checkpoints import Copy, Fetched, Remembered, Saved, StateOffered, StateSaved
from outrider.wire.messages.data_position import DataSaid
from outrider.wire.messages.directions import FromMaster
from outrider.wire.messages.generation import WorkerExit
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.log_lines import LineMatched, PatternDropped
from outrider.wire.messages.node_check import Checked
from outrider.wire.messages.report import OwnTime, RankProgress

FromHooks = Saved | Remembered | StateOffered | StateSaved | PatternDropped | Checked


@dataclass(frozen=True, slots=True)
class Began:
    """The sidecar process is up; first event of every run."""

    job: JobName
    member: MemberId
    uid: PodUid
    role: Role
    rank_index: RankIndex | None
    token: str
    address: str
    probe_port: int
    nproc: int
    sidecar_pid: int = 0
    restarted: bool = False
    """An earlier sidecar served this member: worker processes may be running."""
    ends_as_trainer: bool = False
    """With the trainer's exit code instead of 0."""
    machine: str = ""
    memory_port: int = 0
    """Where this sidecar gives copies of checkpoints to others, and what they must know."""
    memory_key: str = ""
    is_native: bool = False
    """A native sidecar: the platform ends it after the trainer's container, never with it."""
    alone_after: float | None = None
    """Seconds without any word of a master after which the command runs as without us; None: it waits for one for ever
    (docs/adr/0028)."""
    done_after: float = 600.0
    """Seconds that a member whose worker processes have all ended with 0 waits for a master to tell it to finish."""
    endpoint: str = ""
    """Where the master is looked for."""
    word: str = ""
    """What an earlier sidecar, or the hooks, have decided for good (`WordKept`)."""
    alone_trainer: int = 0
    """The pid of the command that was let go."""


@dataclass(frozen=True, slots=True)
class WordKept:
    """What is decided in this pod for good, by the first who wrote it: served or alone."""

    word: str


@dataclass(frozen=True, slots=True)
class MasterSaid:
    message: FromMaster


@dataclass(frozen=True, slots=True)
class MasterConnected:
    """The link is up (again): Hello is due."""


@dataclass(frozen=True, slots=True)
class MasterDisconnected:
    """The link broke. Training goes on."""


@dataclass(frozen=True, slots=True)
class HookConnected:
    """A template or launcher announced itself on agent.sock (again); `workers` are its living worker processes by local
    rank, of generation `running`."""

    connection: str
    what: str
    """template or launcher."""
    pid: int
    rung: str
    rung_reason: str
    nproc: int | None
    max_restarts: int | None
    running: Generation
    workers: tuple[tuple[int, int], ...]
    """(local rank, pid)."""
    can_start: bool = True
    """False: a launcher that runs its command at once and only waits for a template to appear inside it."""


@dataclass(frozen=True, slots=True)
class HookSaid:
    """A template or launcher said something that the master is told as it is."""

    message: FromHooks


@dataclass(frozen=True, slots=True)
class HookDisconnected:
    """The connection of a template or launcher closed. `alive`: its process still exists."""

    connection: str
    alive: bool


@dataclass(frozen=True, slots=True)
class TrainerEnded:
    """The process that was the template or launcher no longer exists (pidfd)."""

    pid: int


@dataclass(frozen=True, slots=True)
class WorkersStarted:
    generation: Generation
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WorkersNotStarted:
    generation: Generation
    error: str


@dataclass(frozen=True, slots=True)
class WorkerExited:
    generation: Generation
    exit: WorkerExit


@dataclass(frozen=True, slots=True)
class WorkersStopped:
    """All processes of this and lower generations have been reaped by the template or launcher."""

    generation: Generation
    killed: int = 0


@dataclass(frozen=True, slots=True)
class CommandEnded:
    """The launcher's command ended outside any generation."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class PagesRead:
    """The progress pages of the running generation, by local rank."""

    generation: Generation
    ranks: tuple[RankProgress, ...]
    own: tuple[OwnTime, ...] = ()
    """Windows of steps that are new since the last look."""


@dataclass(frozen=True, slots=True)
class UsageSampled:
    """CPU in cores and memory in MiB of the trainer's processes since the last sample."""

    cpu: float
    memory_mib: float
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class PortFound:
    port: int
    copies: tuple[Copy, ...] = ()
    """Of checkpoints, that are whole in the member's memory."""


@dataclass(frozen=True, slots=True)
class PeerProbed:
    order: int
    member: MemberId
    reachable: bool


@dataclass(frozen=True, slots=True)
class NeighbourProbed:
    """Answer to ProbeNeighbour."""

    neighbour: Neighbour
    reachable: bool
    round_trip: float = 0.0
    """Seconds; of no meaning where nobody answered."""
    lost: int = 0
    """Datagrams that brought nothing."""


@dataclass(frozen=True, slots=True)
class NeighbourLeft:
    """The sidecar that answered there has said that it goes: its silence means nothing from now on."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class AskedHere:
    """Somebody in the pod asks for `stacks` or `collectives`; `order` is negative."""

    order: int
    what: str


@dataclass(frozen=True, slots=True)
class Collected:
    """Answer to CollectFromWorkers, as JSON."""

    order: int
    body: str


@dataclass(frozen=True, slots=True)
class PatternMet:
    """A rank's output has a line that fits a pattern; `at` is when, by the core's clock."""

    said: LineMatched
    at: float


@dataclass(frozen=True, slots=True)
class DataTold:
    """A rank has told where its data goes on, or why it does not."""

    said: DataSaid
    local_rank: int
    detail: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopiesFetched:
    """Answer to FetchCopies, and what is whole in memory then."""

    answer: Fetched
    copies: tuple[Copy, ...] = ()


@dataclass(frozen=True, slots=True)
class SigtermReceived:
    """The platform ends the sidecar's own container; `grace`: the pod's seconds from SIGTERM to SIGKILL."""

    grace: float


@dataclass(frozen=True, slots=True)
class TerminationAsked:
    """The trainer's container was told to end; its hooks hold that back and say so."""

    reason: str
    grace: float


@dataclass(frozen=True, slots=True)
class LifelineLost:
    """Local only: the command that owns the job is gone, so nothing of it may stay."""


@dataclass(frozen=True, slots=True)
class ActionFailed:
    action: Action
    error: str


@dataclass(frozen=True, slots=True)
class Woke:
    """The moment asked for by next_deadline has come."""


@dataclass(frozen=True, slots=True)
class Stalled:
    seconds: float


Event = (
    WordKept
    | Began
    | MasterSaid
    | MasterConnected
    | MasterDisconnected
    | HookConnected
    | HookSaid
    | HookDisconnected
    | TrainerEnded
    | WorkersStarted
    | WorkersNotStarted
    | WorkerExited
    | WorkersStopped
    | CommandEnded
    | PagesRead
    | UsageSampled
    | PortFound
    | PeerProbed
    | NeighbourProbed
    | NeighbourLeft
    | AskedHere
    | Collected
    | PatternMet
    | DataTold
    | CopiesFetched
    | SigtermReceived
    | TerminationAsked
    | LifelineLost
    | ActionFailed
    | Woke
    | Stalled
)
