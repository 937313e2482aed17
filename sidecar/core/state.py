"""The state of a sidecar's core, one object that only `step` changes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum

from outrider.sidecar.core.events import Began
from outrider.wire.ids import NO_GENERATION, NO_ORDER, Generation, OrderId
from outrider.wire.messages.checkpoints import Copy, Fetch, Fetched, Remembered, Saved
from outrider.wire.messages.data_position import DataSaid
from outrider.wire.messages.generation import Start, WorkerExit
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.log_lines import LineMatched, PatternDropped
from outrider.wire.messages.node_check import Check, Checked
from outrider.wire.messages.report import OwnTime, RankProgress, Spent


class Phase(StrEnum):
    """The member's phase; the values are those of `Report.state`."""

    WAITING = "starting"
    """Waiting for a template or launcher that can start worker processes."""
    READY = "ready"
    """No process of an older generation is left, and worker processes can be started."""
    FORKING = "forking"
    """StartWorkers was ordered but is not answered yet; reported as starting."""
    RUNNING = "running"
    """Worker processes were started; some may have ended since."""
    STOPPING = "stopping"
    """StopWorkers was ordered but is not answered yet."""
    DONE = "done"
    """Every worker process of the generation has ended with 0."""


@dataclass(slots=True)
class Trainer:
    """The template or launcher, as it announced itself. `connection` is empty while it reconnects."""

    connection: str
    what: str
    pid: int
    rung: str
    rung_reason: str
    nproc: int | None
    max_restarts: int | None
    can_start: bool


@dataclass(slots=True)
class Link:
    """The link to the master."""

    up: bool = False
    welcomed: bool = False
    """Whether the master has accepted our Hello. Before that, nothing else is sent to it and its orders are ignored."""
    down_since: float | None = None
    term: int = 0
    """Highest term of any master that has welcomed this member; masters of lower terms are ignored."""
    ticket: str = ""
    """Ticket of the last Welcome, which any master accepts for some time instead of the token."""
    report_every: float = 1.0
    silent_after: float = 3.0
    """Seconds without a message after which the master may declare this member lost."""
    graces: tuple[float, float, float] = (0.2, 10.0, 60.0)
    """`grace`, `handler_grace` and `save_grace` of a stop that the member orders by itself."""
    refusal: str = ""
    """Last logged reason why the master does not serve this member; empty once it does."""
    refusals: int = 0
    """Number of consecutive refusals."""
    hello_at: float | None = None
    report_at: float | None = None
    report_due: bool = False
    """Whether usage is being sampled for a report."""


@dataclass(slots=True)
class Work:
    """One generation in this member, from its Start (or its discovery) until all its processes are gone."""

    generation: Generation
    start: Start | None = None
    """The Start; None if this sidecar started after the generation."""
    start_order: OrderId = NO_ORDER
    start_by: float | None = None
    pids: dict[int, int] = field(default_factory=dict)
    """Pids by local rank, including ended processes."""
    exits: dict[int, WorkerExit] = field(default_factory=dict)
    """Ends of worker processes that were not stopped, by local rank; `age` counts up to when the end was reported."""
    heard_at: dict[int, float] = field(default_factory=dict)
    """When each end was reported, by local rank."""
    doubt: tuple[int, ...] = ()
    """Local ranks that a reconnected hook did not list, and of which no end has been reported."""
    doubt_until: float | None = None
    ranks: tuple[RankProgress, ...] = ()
    own: tuple[OwnTime, ...] = ()
    """Windows of steps that have not been reported yet."""
    spent: tuple[Spent, float] | None = None
    """What the first rank has spent its time on, and when that was read."""
    reports: int = 0
    """The number of reports since the generation began here."""
    offers: tuple[str, ...] | None = None
    """Names of the state that the script can save on request; None: it offers nothing."""
    remembered: dict[int, Remembered] = field(default_factory=dict)
    """The newest complete in-memory checkpoint of each rank."""
    saved: dict[str, Saved] = field(default_factory=dict)
    """The newest saves of the ranks by path, to be reported again: a master that missed one miscounts the steps after
    it."""
    stepped: tuple[int, float, int] | None = None
    """The first step beyond `start.high_step`, its time, and the largest `base` of the ranks."""
    started_at: float = 0.0
    poll_at: float | None = None

    def note_spent(self, spent: Spent | None, now: float) -> None:
        if spent is not None:
            self.spent = (spent, now)

    @property
    def alive(self) -> int:
        return len(self.pids.keys() - self.exits.keys())

    def ends(self, now: float) -> tuple[WorkerExit, ...]:
        """The exits by local rank, with their present age: they may be reported long after they happened."""
        return tuple(
            replace(exit, age=exit.age + now - self.heard_at[rank]) for rank, exit in sorted(self.exits.items())
        )

    @property
    def finished(self) -> bool:
        return (
            bool(self.pids)
            and not self.doubt
            and all(rank in self.exits and self.exits[rank].code == 0 for rank in self.pids)
        )


@dataclass(slots=True)
class Stopping:
    """A StopWorkers that has not been answered yet."""

    generation: Generation
    grace: float
    handler_grace: float
    save_grace: float
    orders: list[OrderId]
    give_up_at: float


@dataclass(slots=True)
class Checking:
    """A round of the node check: the last order, and its answer if there is one."""

    order: Check
    give_up_at: float | None
    answer: Checked | None = None


@dataclass(slots=True)
class Ending:
    """The member's end: the trainer has been, or will be, ordered to finish."""

    reason: str
    leave_at: float | None = None
    """After SIGTERM, the time at which the member ends without a Finish of the master."""
    exit_code: int | None = None
    """Exit code with which the trainer was ordered to finish; None: it has not been ordered yet."""
    give_up_at: float | None = None
    announced_grace_until: float = 0.0
    last_words: str = ""
    """Text for the trainer's own log."""


Place = tuple[str, int]
"""Address and port at which a sidecar answers probes."""


@dataclass(slots=True)
class Seen:
    """Results of the last probes of one neighbour (`sidecar.core.peer_links`)."""

    looks: deque[tuple[float | None, int]]
    """Round trip in seconds (None: no answer) and number of lost datagrams of each probe."""
    missing_since: float | None = None
    """Time of the first unanswered probe since the neighbour's last answer."""
    is_news: bool = False
    """Whether the neighbour has started or stopped answering since the last report."""


@dataclass(slots=True)
class Neighbourhood:
    """The neighbours of this member and their signs of life (`sidecar.core.peer_health`)."""

    neighbours: tuple[Neighbour, ...] = ()
    answered_at: dict[Place, float] = field(default_factory=dict)
    left: set[Place] = field(default_factory=set)
    """Neighbours that have announced their end."""
    sign_at: float = 0.0
    """Time of the last sign of life of the master or any neighbour."""
    unanswered: int = 0
    """Number of rounds of probes since then."""
    looked_at: float = 0.0
    look_at: float | None = None
    turn: int = 0
    """Counter that selects the neighbour to probe next."""
    seen: dict[Place, Seen] = field(default_factory=dict)
    report_all_at: float = 0.0
    """When the next report includes all neighbours."""


@dataclass(slots=True)
class LogLines:
    """Lines of the newest generation's ranks that match a pattern, until the next generation starts."""

    matched: dict[tuple[int, str], tuple[LineMatched, float]] = field(default_factory=dict)
    """The last match by rank and pattern, and when it was written."""
    unsent: set[tuple[int, str]] = field(default_factory=set)
    """Keys of the matches that have not been sent to a master."""
    dropped: dict[str, PatternDropped] = field(default_factory=dict)


@dataclass(slots=True)
class Alone:
    """Whether and when the command runs unsupervised (`unsupervised.py`)."""

    at: float | None = None
    """Earliest time at which the command starts unsupervised; None: never, or no longer possible."""
    remind_at: float | None = None
    """When the next line about the missing master is written into the trainer's log."""
    since: float = 0.0
    """Time since which no master has been connected."""
    is_final: bool = False
    """Whether the command runs unsupervised for good, also after a restart of the sidecar."""
    trainer: int = 0
    """Pid of the command that runs unsupervised; 0: none."""


@dataclass(slots=True)
class State:
    """The whole state; before `Began` every field has its default."""

    me: Began | None = None
    phase: Phase = Phase.WAITING
    link: Link = field(default_factory=Link)
    alone: Alone = field(default_factory=Alone)
    trainer: Trainer | None = None
    met_trainer: bool = False
    """Whether a trainer has ever connected to this sidecar; it may be gone by now."""
    launcher: Trainer | None = None
    """A launcher that runs its command at once, beside the template that has appeared inside that command."""
    unsure_until: float | None = None
    """Until when it is unknown what runs: an earlier sidecar served this member, and no hook has reported yet."""
    work: Work | None = None
    stopping: Stopping | None = None
    ending: Ending | None = None
    checking: Checking | None = None
    highest: Generation = NO_GENERATION
    """Highest generation of which this member has learned; lower ones are refused."""
    stopped: Generation = NO_GENERATION
    """Last generation that has ended completely here; it cannot be started again."""
    neighbourhood: Neighbourhood = field(default_factory=Neighbourhood)
    hands_off: bool = False
    """Whether the job is switched off or only observed, so that no worker process is stopped (`hands_off.py`)."""
    deserted_since: float | None = None
    """Time since which all worker processes have ended with 0 without a master serving this member (`deserted.py`)."""
    isolated: str = ""
    """Why this member stopped its newest generation by itself; empty: it did not."""
    stopped_step: int = 0
    stopped_at: float = 0.0
    stopped_killed: int = 0
    stopped_spent: tuple[Spent, float] | None = None
    not_started: tuple[Generation, str] | None = None
    """Generation of the last Start that failed, and why."""
    port: int = 0
    """Port for the next rendezvous; 0 while one is being searched for."""
    port_at: float | None = None
    """When to search for a port again after a failure."""
    copies: tuple[Copy, ...] = ()
    """Complete checkpoints in the member's memory when the port was found, or after the last fetch."""
    kept: tuple[Generation, int] = (NO_GENERATION, -1)
    """Newest step that every rank has in memory, with the generation in which the master reported it."""
    fetching: Fetch | None = None
    fetched: Fetched | None = None
    """Answer to the last Fetch."""
    lost: tuple[str, Generation, tuple[WorkerExit, ...], tuple[Spent, float] | None] | None = None
    """Reason, generation, worker exits and `Work.spent` of a trainer that died and has no successor yet."""
    command_ended: tuple[int, str] | None = None
    lines: LogLines = field(default_factory=LogLines)
    data_notes: tuple[DataSaid, ...] = ()
    """Reports of the newest generation's ranks about their data, until the next generation starts."""
    cpu: float = 0.0
    memory_mib: float = 0.0
    gpus: int = 0
    over: bool = False
    """Whether Exit was ordered; later events are ignored."""

    @property
    def generation(self) -> Generation:
        return self.work.generation if self.work else NO_GENERATION
