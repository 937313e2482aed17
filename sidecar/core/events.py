"""The events that the sidecar's core handles: past tense, frozen, without behaviour."""

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
from outrider.wire.messages.report import OwnTime, RankProgress, Spent

FromHooks = Saved | Remembered | StateOffered | StateSaved | PatternDropped | Checked


@dataclass(frozen=True, slots=True)
class Began:
    """The sidecar process has started; the first event of every run."""

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
    """Whether an earlier sidecar served this member, so that worker processes may be running."""
    ends_as_trainer: bool = False
    """Whether the sidecar ends with the trainer's exit code instead of 0."""
    machine: str = ""
    """Boot id of the machine's kernel; empty if it cannot be read."""
    memory_port: int = 0
    """Port at which this sidecar sends replicas of checkpoints to other members."""
    memory_key: str = ""
    """Key that other members must have to receive replicas."""
    is_native: bool = False
    """Whether this is a native sidecar, which the platform ends after the trainer's container, never with it."""
    alone_after: float | None = None
    """Seconds without any message of a master after which the command runs as without Outrider; None: it waits for a
    master for ever (docs/adr/0028)."""
    done_after: float = 600.0
    """Seconds that a member whose worker processes have all ended with 0 waits for a master's Finish."""
    endpoint: str = ""
    """Endpoint of the master."""
    word: str = ""
    """What an earlier sidecar, or the hooks, have decided for good (`WordKept`); empty: nothing."""
    alone_trainer: int = 0
    """Pid of the command that runs unsupervised; 0: none."""


@dataclass(frozen=True, slots=True)
class WordKept:
    """How this pod trains for good, as recorded by the first process that decided it: served or alone."""

    word: str


@dataclass(frozen=True, slots=True)
class MasterSaid:
    message: FromMaster


@dataclass(frozen=True, slots=True)
class MasterConnected:
    """The link to the master is up (again), so that Hello is due."""


@dataclass(frozen=True, slots=True)
class MasterDisconnected:
    """The link to the master broke; training continues."""


@dataclass(frozen=True, slots=True)
class HookConnected:
    """A template or launcher announced itself on agent.sock (again); `workers` are its live worker processes of
    generation `running`."""

    connection: str
    what: str
    """`template` or `launcher`."""
    pid: int
    rung: str
    rung_reason: str
    nproc: int | None
    max_restarts: int | None
    running: Generation
    workers: tuple[tuple[int, int], ...]
    """Local rank and pid of each live worker process."""
    can_start: bool = True
    """Whether it can start worker processes. A launcher that runs its command at once cannot: it waits until a template
    appears inside that command."""


@dataclass(frozen=True, slots=True)
class HookSaid:
    """A template or launcher sent a report that is passed on to the master unchanged."""

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
    spent: Spent | None = None
    """What the process has spent its time on, if it was the first rank."""


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
    """The progress pages of the running generation were read; `ranks` is ordered by local rank."""

    generation: Generation
    ranks: tuple[RankProgress, ...]
    own: tuple[OwnTime, ...] = ()
    """Windows of steps that are new since the last read."""
    spent: Spent | None = None
    """What the first rank has spent its time on."""


@dataclass(frozen=True, slots=True)
class UsageSampled:
    """CPU use (cores, since the last sample) and memory (MiB) of the trainer's processes were measured."""

    cpu: float
    memory_mib: float
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class PortFound:
    """Answer to FindPort."""

    port: int
    copies: tuple[Copy, ...] = ()
    """Complete checkpoints in the member's memory."""


@dataclass(frozen=True, slots=True)
class PeerProbed:
    """Answer to ProbePeer."""

    order: int
    member: MemberId
    reachable: bool


@dataclass(frozen=True, slots=True)
class NeighbourProbed:
    """Answer to ProbeNeighbour."""

    neighbour: Neighbour
    reachable: bool
    round_trip: float = 0.0
    """Round-trip time in seconds; without meaning if the neighbour did not answer."""
    lost: int = 0
    """Number of datagrams without an answer."""


@dataclass(frozen=True, slots=True)
class NeighbourLeft:
    """The sidecar at this address has announced its end, so that its silence means nothing from now on."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class AskedHere:
    """A program in the pod requests `stacks` or `collectives`; `order` is negative."""

    order: int
    what: str


@dataclass(frozen=True, slots=True)
class Collected:
    """Answer to CollectFromWorkers, as JSON."""

    order: int
    body: str


@dataclass(frozen=True, slots=True)
class PatternMet:
    """A line of a rank's output matches a pattern; `at` is the time by the core's clock."""

    said: LineMatched
    at: float


@dataclass(frozen=True, slots=True)
class DataTold:
    """A rank has reported where its data resumes, or why it does not resume."""

    said: DataSaid
    local_rank: int
    detail: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopiesFetched:
    """Answer to FetchCopies, with the complete checkpoints in memory after it."""

    answer: Fetched
    copies: tuple[Copy, ...] = ()


@dataclass(frozen=True, slots=True)
class SigtermReceived:
    """The platform ends the sidecar's container; `grace`: the pod's seconds between SIGTERM and SIGKILL."""

    grace: float


@dataclass(frozen=True, slots=True)
class TerminationAsked:
    """The trainer's container received SIGTERM; its hooks hold the end back and report it."""

    reason: str
    grace: float


@dataclass(frozen=True, slots=True)
class LifelineLost:
    """Local only: the command that owns the job is gone, so that all processes of the job must end."""


@dataclass(frozen=True, slots=True)
class ActionFailed:
    action: Action
    error: str


@dataclass(frozen=True, slots=True)
class Woke:
    """The time returned by `next_deadline` has come."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """The sidecar's process did not run for `seconds`."""

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
