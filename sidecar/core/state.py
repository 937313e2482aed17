"""Everything a sidecar knows, as one object that only `step` changes."""

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
from outrider.wire.messages.report import OwnTime, RankProgress


class Phase(StrEnum):
    """What the member does; the values are those of `Report.state`."""

    WAITING = "starting"
    """No template or launcher that could start worker processes."""
    READY = "ready"
    """Nothing of an older generation lives, and worker processes can be started."""
    FORKING = "forking"
    """StartWorkers was ordered and not answered yet. Reported as starting."""
    RUNNING = "running"
    """Worker processes were started; some may have ended since."""
    STOPPING = "stopping"
    """StopWorkers was ordered and not answered yet."""
    DONE = "done"
    """Every worker process of the generation ended with 0."""


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
    """The way to the master."""

    up: bool = False
    welcomed: bool = False
    """The master took our Hello: before that nothing else is said to it, and nothing it says is obeyed."""
    down_since: float | None = None
    term: int = 0
    """The highest term of any master that welcomed us: an older one is paused history."""
    ticket: str = ""
    """From the last Welcome: any master takes it for some time instead of the token."""
    report_every: float = 1.0
    silent_after: float = 3.0
    """Seconds after which the master may take a member that it does not hear for lost."""
    graces: tuple[float, float, float] = (0.2, 10.0, 60.0)
    """Of a stop without the master's word: `grace`, `handler_grace` and `save_grace` of Stop."""
    refusal: str = ""
    """Why the master does not serve this member, as it was logged last; empty once it does."""
    refusals: int = 0
    """How often it has said so, one after the other."""
    hello_at: float | None = None
    report_at: float | None = None
    report_due: bool = False
    """Usage is being sampled for a report."""


@dataclass(slots=True)
class Work:
    """One generation in this member, from Start (or from finding it running) until everything of it is gone."""

    generation: Generation
    start: Start | None = None
    """None where this sidecar is younger than the generation."""
    start_order: OrderId = NO_ORDER
    start_by: float | None = None
    pids: dict[int, int] = field(default_factory=dict)
    """By local rank, the ended ones too."""
    exits: dict[int, WorkerExit] = field(default_factory=dict)
    """How those ended that were not told to, each with its age when it was heard of."""
    heard_at: dict[int, float] = field(default_factory=dict)
    """When it was heard of, by local rank."""
    doubt: tuple[int, ...] = ()
    """Local ranks that a reconnected hook no longer named, and that did not end as far as we know."""
    doubt_until: float | None = None
    ranks: tuple[RankProgress, ...] = ()
    own: tuple[OwnTime, ...] = ()
    """Windows of steps that no report has told yet."""
    offers: tuple[str, ...] | None = None
    """What the script has registered that it saves when it is asked to; None: nothing is offered here."""
    remembered: dict[int, Remembered] = field(default_factory=dict)
    """The newest copy of each rank that is whole in the member's memory."""
    saved: dict[str, Saved] = field(default_factory=dict)
    """The newest saves of its ranks by path, to be said again: a master that has not heard of one counts the steps
    behind it wrong."""
    stepped: tuple[int, float, int] | None = None
    """The first step beyond `start.high_step` and the moment of it."""
    started_at: float = 0.0
    poll_at: float | None = None

    @property
    def alive(self) -> int:
        return len(self.pids.keys() - self.exits.keys())

    def ends(self, now: float) -> tuple[WorkerExit, ...]:
        """The exits by local rank, each as old as it is now: they may be told long after they happened."""
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
    """A StopWorkers that is not answered yet."""

    generation: Generation
    grace: float
    handler_grace: float
    save_grace: float
    orders: list[OrderId]
    give_up_at: float


@dataclass(slots=True)
class Checking:
    """A round of the node check: what was ordered last, and the answer where there is one."""

    order: Check
    give_up_at: float | None
    answer: Checked | None = None


@dataclass(slots=True)
class Ending:
    """The member's end: the trainer was told to finish, or will be."""

    reason: str
    leave_at: float | None = None
    """Told to go: the moment to end without the master's word."""
    exit_code: int | None = None
    """Finish was ordered with this code."""
    give_up_at: float | None = None
    announced_grace_until: float = 0.0
    last_words: str = ""
    """What the trainer's own log is to say."""


Place = tuple[str, int]
"""Address and port of a sidecar's probes."""


@dataclass(slots=True)
class Seen:
    """What the last looks at one neighbour brought (`sidecar.core.peer_links`)."""

    looks: deque[tuple[float | None, int]]
    """The seconds of each one's round trip, None where nobody answered, and the datagrams that were lost."""
    missing_since: float | None = None
    """The first of the looks that have found nobody since its last answer."""
    is_news: bool = False
    """It has begun or ceased to answer, and the master does not know yet."""


@dataclass(slots=True)
class Neighbourhood:
    """Who of the world is within reach, as far as this member has looked (`sidecar.core.self_fencing`)."""

    neighbours: tuple[Neighbour, ...] = ()
    answered_at: dict[Place, float] = field(default_factory=dict)
    left: set[Place] = field(default_factory=set)
    """Those that said that they go."""
    sign_at: float = 0.0
    """The last sign of life of anybody: the master or a neighbour."""
    unanswered: int = 0
    """Looks around since then."""
    looked_at: float = 0.0
    look_at: float | None = None
    turn: int = 0
    """Whose turn it is to be asked."""
    seen: dict[Place, Seen] = field(default_factory=dict)
    tell_at: float = 0.0
    """When the master is told of all of them again."""


@dataclass(slots=True)
class LogLines:
    """What the newest generation's ranks have written that fits a pattern, until the next one starts."""

    matched: dict[tuple[int, str], tuple[LineMatched, float]] = field(default_factory=dict)
    """By rank and pattern the last, and when it was written."""
    unsaid: set[tuple[int, str]] = field(default_factory=set)
    """Of those the ones that no master was there for."""
    dropped: dict[str, PatternDropped] = field(default_factory=dict)


@dataclass(slots=True)
class Alone:
    """Whether the command is let go without a master (`unsupervised.py`)."""

    at: float | None = None
    """When, at the earliest; None: never, or no more."""
    tell_at: float | None = None
    """When the trainer's log says once more what is waited for."""
    since: float = 0.0
    """No master has been there since then."""
    is_final: bool = False
    """It was let go: for good, whatever becomes of this process."""
    trainer: int = 0
    """The pid of the command that runs."""


@dataclass(slots=True)
class State:
    """Before `Began` everything has its default."""

    me: Began | None = None
    phase: Phase = Phase.WAITING
    link: Link = field(default_factory=Link)
    alone: Alone = field(default_factory=Alone)
    trainer: Trainer | None = None
    met_trainer: bool = False
    """One has come to this sidecar; it may be gone since."""
    launcher: Trainer | None = None
    """One that runs its command at once and in whose command the template has appeared."""
    unsure_until: float | None = None
    """An earlier sidecar served this member, and no hook has said yet what runs: until then it is not known."""
    work: Work | None = None
    stopping: Stopping | None = None
    ending: Ending | None = None
    checking: Checking | None = None
    highest: Generation = NO_GENERATION
    """The highest generation ever heard of: lower ones are refused."""
    stopped: Generation = NO_GENERATION
    """The last generation of which everything is gone here: it cannot be started again."""
    neighbourhood: Neighbourhood = field(default_factory=Neighbourhood)
    hands_off: bool = False
    """The job is switched off, or only observed: worker processes are left alone (`hands_off.py`)."""
    deserted_since: float | None = None
    """Every worker process has ended with 0 and no master has served this member since then (`deserted.py`)."""
    isolated: str = ""
    """Why this member has stopped its newest generation by itself."""
    stopped_step: int = 0
    stopped_at: float = 0.0
    stopped_killed: int = 0
    not_started: tuple[Generation, str] | None = None
    """Why the last Start could not be done."""
    port: int = 0
    """For the next rendezvous; 0 while it is being looked for."""
    port_at: float | None = None
    """When to look again, after it could not be found."""
    copies: tuple[Copy, ...] = ()
    """Of checkpoints in the member's memory, as of when the port was found."""
    kept: tuple[Generation, int] = (NO_GENERATION, -1)
    """The step that every rank has in memory, and which master's word that was."""
    fetching: Fetch | None = None
    fetched: Fetched | None = None
    """What became of the last one."""
    lost: tuple[str, Generation, tuple[WorkerExit, ...]] | None = None
    """A trainer that died and has no successor yet."""
    command_ended: tuple[int, str] | None = None
    lines: LogLines = field(default_factory=LogLines)
    data_notes: tuple[DataSaid, ...] = ()
    """What the newest generation's ranks have told of their data, until the next one starts."""
    cpu: float = 0.0
    memory_mib: float = 0.0
    gpus: int = 0
    over: bool = False
    """Exit was asked for: nothing more happens."""

    @property
    def generation(self) -> Generation:
        return self.work.generation if self.work else NO_GENERATION
