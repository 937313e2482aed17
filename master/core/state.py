"""Everything the master's core knows about a job, in one object that only `step` changes.

The stage says what is going on; the world says which generation it is about:

    gathering   no world: members come, the next generation forms as soon as it may
    committing  a world is decided and its status is being saved; nobody has been told
    running     Start was sent (acknowledged or not); training
    stopping    Stop was sent; the survivors' Stopped and Ready are awaited
    rebuilding  a new master waits for the Hellos of members that an earlier one started
    finishing   the job is over and everyone is being told
    ended       EndJob was said

`act` collects what the current step wants done. The sets `ready` and `coming` are kept by `membership.refresh` whenever
a member changes, so that no question about the whole job needs a walk over its members at every message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from master.core.actions import Action, Announce
from master.core.answers import Known, Rows
from master.core.deadlines import Deadlines
from master.core.events import NodeSeen
from master.core.links import Links
from master.core.own_size import Scaling
from master.core.pace import Pace, Watch
from master.core.pairing import Answer, Finding, Groups, Round
from master.core.spec import JobSpec, Rule
from master.core.stragglers import Comparison
from wire.ids import NO_GENERATION, Generation, JobName, MemberId, OrderId, PodUid, RankIndex, Role
from wire.messages import Exited, FromMaster, LineMatched, Ready, Report, WorkerExit

GATHERING, COMMITTING, RUNNING, STOPPING = "gathering", "committing", "running", "stopping"
REBUILDING, FINISHING, ENDED = "rebuilding", "finishing", "ended"

ALIVE, SILENT, GONE, FAILED = "alive", "silent", "gone", "failed"
"""A member's life: silent is a verdict that its next word takes back; gone and failed are for ever."""


ENDED_WELL = "succeeded"
"""The phase of a pod all of whose containers have ended with code 0."""


@dataclass(slots=True)
class Order:
    """An order to one member, repeated until it is acknowledged."""

    id: OrderId
    message: FromMaster
    generation: Generation
    reason: str
    interval: float


@dataclass(slots=True)
class Doubt:
    """A member has not been heard for a while; who was asked to reach it, and what they said."""

    asked: dict[OrderId, MemberId] = field(default_factory=dict)
    reached_by: set[MemberId] = field(default_factory=set)
    missed_by: set[MemberId] = field(default_factory=set)
    own: bool | None = None
    """The master's own attempt: None where it has no answer."""
    told: str = ""
    """The last thing said about it, so that it is said once."""

    @property
    def is_of_the_master_only(self) -> bool:
        """A peer reaches the member: it is well, and only the master cannot talk to it."""
        return bool(self.reached_by) or self.told == "reached"


@dataclass(slots=True)
class Member:
    id: MemberId
    role: Role
    rank_index: RankIndex | None
    created_at: float
    own_index: RankIndex | None = None
    """What the controller that made its pod says: it gets this rank index and no other (`successors`)."""
    uid: PodUid | None = None
    life: str = ALIVE
    pod_phase: str = ""
    """Empty until the platform shows the pod."""
    pod_reason: str = ""
    unschedulable: bool = False
    cannot_start: bool = False
    """Its pod waits for something that does not come by itself, or may not be made: nobody waits for it."""
    has_controller: bool = True
    """Somebody makes another pod when this one is deleted; one without is never deleted."""
    grace_ends: float | None = None
    """Its pod is being deleted, and has to be gone by then."""
    sidecar_ended: str = ""
    """How its sidecar ended, where nobody starts it again (`orphans`)."""
    has_ended: bool = False
    """As its last PodSeen said."""
    is_stuck: bool = False
    """It was not, and that has been told."""
    is_stranger: bool = False
    """Its sidecar holds the key of another installation's master (`strangers`)."""
    was_idle: bool = False
    """A stranger that this master has seen before its containers ran: nobody can have started it."""
    node: str = ""
    avoid: tuple[str, ...] = ()
    """Nodes that its pod was made to keep off."""
    memory_limit: int = 0
    """Bytes that its trainer's container may use; 0: no limit is known."""
    out_of_memory: bool = False
    """Its container had too little memory, and that ended it."""
    hung: bool = False
    """It was to blame for hangs, and fails for that."""
    exit_code: int | None = None
    """Of its trainer's container, where its pod has ended."""
    overdue: bool = False
    """It has been starting for longer than anyone waits for."""
    leaving: str = ""
    """Why it will not be part of another generation, if so."""
    leave_at: float | None = None
    """The moment that the least grace it was given leaves it; None: it may stay until it is replaced."""
    leaves_with_node: bool = False
    """For its node's sake alone, and that may come back."""
    deleting: bool = False
    dismissed: str = ""
    """Why it is deleted whatever is heard of it meanwhile, if so (`giving_up.dismiss`)."""
    lost_by_fault: bool = False
    taken_out: str = ""
    """Why its pod, which runs, is no part of the job any more."""
    session: str | None = None
    greeted: bool = False
    """It has said Hello to this master."""
    heard_at: float = 0.0
    doubt: Doubt | None = None
    address: str = ""
    probe_port: int = 0
    machine: str = ""
    """As in its Hello."""
    memory_port: int = 0
    memory_key: str = ""
    """Where its sidecar gives copies of checkpoints, and to whom."""
    nproc: int = 0
    rung: str = ""
    rung_reason: str = ""
    trainer_pid: int = 0
    max_restarts: int | None = None
    ready: Ready | None = None
    """Its newest Ready, until a Start uses it up: its port serves one generation only."""
    told: Generation = NO_GENERATION
    """The highest generation it was told to start."""
    highest: Generation = NO_GENERATION
    """The highest generation that its sidecar has heard of, as its last Hello said."""
    stopped: Generation = NO_GENERATION
    running: Generation = NO_GENERATION
    """What it said to be running in its Hello: looked at by a new master."""
    offers: bool = False
    """The script that runs there saves its state when it is asked to, as its last Hello said."""
    isolated: str = ""
    """Why it has stopped `highest` by itself, or is stopping it: it was cut off. As its last Hello said."""
    check_wanted: str = ""
    """Why it must pass the node check before it may train; empty where it need not."""
    finding: Finding | None = None
    """What the node check measured when it passed."""
    finished: bool = False
    trainer_lost: bool = False
    trainer_exits: int = 0
    trainer_code: int | None = None
    report: Report | None = None
    rung_told: bool = False
    create_failures: int = 0
    create_asked_at: float = 0.0
    orders: dict[OrderId, Order] = field(default_factory=dict)

    @property
    def is_usable(self) -> bool:
        """It may be part of the next generation once it is ready."""
        is_staying = not self.leaving and not self.deleting and self.pod_phase != "terminating"
        return self.life == ALIVE and is_staying and not self.sidecar_ended


def in_order(member: Member) -> tuple[str, int, str]:
    """For `sorted`: as users count."""
    number = member.id.rpartition("-")[2]
    return (member.role, int(number) if number.isdigit() else 0, member.id)


class Placed(NamedTuple):
    """A member of an earlier master, and its rank indexes: the one that it had, and the one that its pod says."""

    uid: PodUid
    rank_index: RankIndex | None
    own_index: RankIndex | None


@dataclass(frozen=True, slots=True)
class Place:
    """A member's part of one world."""

    member: MemberId
    role: Role
    rank_index: RankIndex
    group_rank: int
    first_rank: int
    nproc: int
    role_first_rank: int
    role_world_size: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A worker process that ended badly."""

    member: MemberId
    rank: int
    at: float
    exit: WorkerExit
    is_effect: bool
    """An error of torch.distributed: some other rank's end is the cause."""
    signature: str
    """Equal for equal errors; empty for a signal."""
    verdict: tuple[str, str] = ("", "")
    """What a rule of the user's says: the action, and why."""
    is_alone: bool = False
    """A member of a PS job has no rank."""
    note: str = ""
    """What its own words do not say."""


@dataclass(slots=True)
class Fault:
    """What the user reads in the list of faults."""

    at: float
    kind: str
    member: MemberId | None
    reason: str
    generation: Generation
    seconds_lost: float | None = None
    node: str = ""
    """The node that this speaks against; empty where it says nothing about one (`bad_nodes`)."""


class DataNote(NamedTuple):
    """What a rank has told of its data (`data_notes`)."""

    generation: str
    kind: str
    sentence: str
    samples: int
    """That are trained on again."""


@dataclass(slots=True)
class FailedPod:
    """A pod that failed by itself, or whose machine was taken from it; kept so that its log and spec can be read."""

    uid: PodUid
    rank_index: RankIndex | None
    taken: str = ""
    """Who took it, in the platform's words; empty where it failed by itself."""
    is_over: bool = False
    """Nothing of it runs any more."""
    deleting: bool = False


@dataclass(slots=True)
class Flag:
    """A rule of the user's holds for a node."""

    action: str
    why: str
    since: float = float("-inf")
    """Who was made before, and comes there, was on its way."""
    to_go: set[PodUid] = field(default_factory=set)
    """Pods that are to be replaced for it."""
    is_told: bool = True


@dataclass(slots=True)
class Episode:
    """One generation's end by a fault: the evidence, and what was made of it."""

    generation: Generation
    fault: Fault
    began_at: float
    failures: list[Failure] = field(default_factory=list)
    charged: bool = False
    free: bool = False
    """It costs no budget whatever the exits say: a member was lost, a port was taken."""


@dataclass(slots=True)
class PlannedSave:
    """The script was asked to save its state (`moves`)."""

    orders: frozenset[OrderId]
    why: str
    signal: str = ""
    """By which all ranks were asked."""
    over_at: float | None = None
    """When it was saved, or known not to be."""


@dataclass(slots=True)
class Restoring:
    """Copies of a checkpoint that members are given before the world starts (`restoring`)."""

    orders: dict[OrderId, MemberId] = field(default_factory=dict)
    """Those that are awaited."""
    until: float = 0.0
    name: str = ""
    """What is given, for people."""
    step: int = -1
    """Of a sharded checkpoint that the world begins from; -1: of none."""
    made_in: Generation = NO_GENERATION
    unheld: dict[MemberId, int] = field(default_factory=dict)
    """Members whose copies of it the next one does not hold, and their bytes."""


@dataclass(slots=True)
class Keeping:
    """Checkpoints in the memories of a world that runs (`keeping`)."""

    said: dict[tuple[int, bool], set[int]] = field(default_factory=dict)
    """By step, and whether it is sharded: the ranks that have it."""
    lengths: dict[int, int] = field(default_factory=dict)
    """Bytes, by rank."""
    kept: int = -1
    copied: int = -1
    """The step that partners hold, or are being given."""
    waiting: int = -1
    """The next one."""
    orders: dict[OrderId, MemberId] = field(default_factory=dict)
    failed: bool = False
    """Not all of it came."""
    told: bool = False
    counted: dict[int, int] = field(default_factory=dict)
    """Saves of the marked path, and the steps that had been made by then."""
    lacking: list[MemberId] = field(default_factory=list)
    """Who is still to be given the one that is on its way, the last first."""
    givers: dict[OrderId, MemberId] = field(default_factory=dict)
    """Of the orders: who gives."""


@dataclass(slots=True)
class World:
    """One generation."""

    generation: Generation
    places: dict[MemberId, Place]
    """By group rank; they stay as they are."""
    address: str
    port: int
    version: int
    """Of the status that must be saved before Start is sent."""
    world_size: int
    reason: str
    formed_at: float
    started: set[MemberId] = field(default_factory=set)
    done: set[MemberId] = field(default_factory=set)
    """Members all of whose worker processes ended with 0."""
    waiting: set[MemberId] = field(default_factory=set)
    """While stopping: who has not yet stopped and become ready again."""
    stop_reason: str = ""
    made_step: bool = False
    recovered: bool = False
    lost_from: float | None = None
    """When the highest step of the worlds before was made, while time is being lost."""
    comparison: Comparison = field(default_factory=Comparison)
    """Who is slow in it."""
    saver: MemberId | None = None
    """Where the script saves its state when it is asked to."""
    save: PlannedSave | None = None
    restoring: Restoring | None = None
    """None: nobody has looked yet who lacks a checkpoint."""
    keeping: Keeping = field(default_factory=Keeping)
    begins_from: tuple[int, Generation] = (-1, NO_GENERATION)
    """The save of the marked path that every member had at its start, and who made it."""
    order: tuple[MemberId, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.order = tuple(self.places)


@dataclass(slots=True)
class Owner:
    """The controller that makes the pods of an adopted job (`owning.py`)."""

    size: int | None = None
    """Pods that it wanted when it was read last."""
    asked: int | None = None
    """What it was asked for, until it has another size than before."""
    led_from: int | None = None
    """Its user has changed it, and the job, which wants so many, is to follow."""
    failures: int = 0


@dataclass(slots=True)
class Budget:
    """So many uses; one comes back per `decay` seconds without a use."""

    used: int = 0
    since: float = 0.0


@dataclass(slots=True)
class Collection:
    """A question to every member: who has answered what."""

    request: str
    what: str
    orders: dict[OrderId, MemberId] = field(default_factory=dict)
    bodies: dict[MemberId, str] = field(default_factory=dict)
    """Where a user asks."""
    said: dict[MemberId, Rows] = field(default_factory=dict)
    """Where we ask."""
    known: Known = field(default_factory=dict)
    missing: set[MemberId] = field(default_factory=set)
    is_ours: bool = False
    """Not a user asks, but we: about a hang."""


@dataclass(slots=True)
class Check:
    """A node check that is going on (`checks`), and its present round, if one is."""

    subjects: set[MemberId]
    """Who is judged."""
    helpers: list[MemberId]
    """Who is known to be well, and measures with them."""
    training: frozenset[MemberId]
    """Helpers that train meanwhile: all-gather only."""
    rounds: list[Round] = field(default_factory=list)
    number: int = 0
    groups: Groups = ()
    began_at: float = 0.0
    orders: dict[MemberId, OrderId] = field(default_factory=dict)
    """Of those whose answers are awaited."""
    ports: dict[MemberId, int] = field(default_factory=dict)
    """The ports that this round uses up."""
    answers: dict[MemberId, Answer] = field(default_factory=dict)
    lost: set[MemberId] = field(default_factory=set)
    """Members that cannot answer any more, to be looked at in this step."""
    mute: set[MemberId] = field(default_factory=set)
    """Subjects that live and were not ready again for this round: they count as without an answer in it."""


@dataclass(slots=True)
class State:
    spec: JobSpec = field(default_factory=lambda: JobSpec(JobName(""), 1, 1, 1))
    term: int = 0
    now: float = 0.0
    unix_offset: float = 0.0
    """Add it to `now` for the wall clock."""
    began_at: float = 0.0
    """When the job began (an earlier master's time counts)."""
    began_now: float = 0.0
    """When this master began."""
    stage: str = GATHERING
    phase: str = "pending"
    message: str = "waiting for members"
    exit_code: int | None = None
    target: int = 0
    listed: bool = False
    """The platform has told what it has: members may be created."""
    patient: bool = True
    """The next world waits for everyone who can come soon; after a fault the survivors go on at once instead."""
    members: dict[MemberId, Member] = field(default_factory=dict)
    past: dict[MemberId, Member] = field(default_factory=dict)
    """The newest members that are no more."""
    placed: dict[MemberId, Placed] = field(default_factory=dict)
    """An earlier master's members, as they were last: a pod's label says what it was made with."""
    addresses: dict[MemberId, tuple[PodUid, str, int]] = field(default_factory=dict)
    """Where an earlier master's members answer probes: who has not spoken to this one can be looked for too."""
    silent: dict[MemberId, tuple[PodUid, float]] = field(default_factory=dict)
    """Members that an earlier master had left out, and when they were heard last."""
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    """Those that are not Ready, or gone."""
    marked: dict[str, NodeSeen] = field(default_factory=dict)
    """Those with conditions or taints that a rule may name."""
    flags: dict[str, Flag] = field(default_factory=dict)
    """Those for which a rule of the user's holds."""
    hits: dict[tuple[Rule, str], list[float]] = field(default_factory=dict)
    """When a rule was met that is not followed each time, and by whom (`rules`)."""
    tried: dict[Rule, float] = field(default_factory=dict)
    """When a dry run was told."""
    holding: dict[tuple[str, Rule], bool] = field(default_factory=dict)
    """Rules that hold for a node, and whether they were met often enough when they began to."""
    judged: dict[tuple[MemberId, int], tuple[str, str]] = field(default_factory=dict)
    """What the rules say of ends of ranks, by local rank, in the generation `judged_of`."""
    judged_of: Generation = NO_GENERATION
    log_serials: dict[MemberId, int] = field(default_factory=dict)
    """Of the last LineMatched of each member."""
    dropped_patterns: set[str] = field(default_factory=set)
    """Those of the rules that are too slow, or cannot be read."""
    scaling: Scaling = field(default_factory=Scaling)
    """Of a job that finds its own size."""
    first_world: int = 0
    """Ranks of the job's first world; 0: there was none yet."""
    data_notes: list[DataNote] = field(default_factory=list)
    samples_repeated: int = 0
    refusals: set[str] = field(default_factory=set)
    """Why the platform makes no pods, as it was told."""
    closed: str = ""
    """Why it will never make another one, if so."""
    sessions: dict[str, MemberId] = field(default_factory=dict)
    ready: set[MemberId] = field(default_factory=set)
    coming: set[MemberId] = field(default_factory=set)
    unchecked: set[MemberId] = field(default_factory=set)
    """Those of `coming` that would be ready, but for the node check."""
    check: Check | None = None
    rounds: list[dict[str, object]] = field(default_factory=list)
    """The newest rounds of the node check, as users read them."""
    round_number: int = 0
    """Of the next round: they count on over replacements and masters."""
    checked: dict[MemberId, tuple[PodUid, Finding]] = field(default_factory=dict)
    """Of an earlier master's members: those that had passed the node check, and what it measured."""
    exclusions: dict[RankIndex, int] = field(default_factory=dict)
    """Members that did not pass it, by rank index."""
    doubted: set[MemberId] = field(default_factory=set)
    elsewhere: Callable[[], Iterable[Member]] = tuple
    """Members of the job's other seats, where this is one of a PS job: who is not heard beside how many others."""
    orphans: set[MemberId] = field(default_factory=set)
    """Members whose sidecar has ended for good, to be looked at in this step."""
    strangers: set[MemberId] = field(default_factory=set)
    has_news_of_strangers: bool = False
    """Some came in this step."""
    blocked_by_strangers: bool = False
    """No generation forms beside them, and the message says so."""
    lost_a_stranger: bool = False
    """One that may have trained went, or failed, before it had finished."""
    deaf_until: float = 0.0
    """Silence counts from here at the earliest: we did not listen before."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    next_order: int = 1
    next_id: dict[Role, int] = field(default_factory=dict)
    held: set[RankIndex] = field(default_factory=set)
    """Rank indexes that ever had a member: another one is a relaunch."""
    told_empty: set[RankIndex] = field(default_factory=set)
    """Those of which it was said that no budget is left to fill them."""
    spares_made: int = 0
    number: int = 0
    world: World | None = None
    met: dict[MemberId, tuple[Generation, int]] = field(default_factory=dict)
    """The newest generation that was to meet at a member, and at which of its ports: it serves no other."""
    resize: str = ""
    """Why the world is to change at the next checkpoint, if so."""
    restart_wanted: str = ""
    stop_wanted: str = ""
    """Why the user ends the job, which waits until this master knows the world and the script's state is saved."""
    stop_by: float | None = None
    """When the platform ends its members by itself, if it does."""
    suspended: bool = False
    """The user wants no world and no members for now."""
    episode: Episode | None = None
    same_error: tuple[str, int] = ("", 0)
    """The error of the last generations that made no step, and how many running."""
    port_clashes: int = 0
    restarts: Budget = field(default_factory=Budget)
    relaunches: int = 0
    failed_relaunches: dict[int, Budget] = field(default_factory=dict)
    """By rank index, -1 for spares."""
    failures: dict[int, int] = field(default_factory=dict)
    """Failed pods by rank index, -1 for spares, however long ago."""
    failed_pods: dict[MemberId, FailedPod] = field(default_factory=dict)
    memory: dict[RankIndex, int] = field(default_factory=dict)
    """Bytes that the container of a rank index needs, where its template's were too few."""
    slow_replaced: set[RankIndex] = field(default_factory=set)
    """Whose member was replaced for being slow."""
    links: Links = field(default_factory=Links)
    """How members reach each other."""
    parted: dict[RankIndex, float] = field(default_factory=dict)
    """Whose member was replaced because it and another one could not see each other, and when."""
    avoiding: tuple[str, ...] = ()
    """Nodes that new pods keep off."""
    condemned: dict[str, float] = field(default_factory=dict)
    """Nodes of which a rule of the user's said so, and when."""
    forgiven_at: float = float("-inf")
    """What speaks against a node and is older does not count: there was no room without it."""
    faults: list[Fault] = field(default_factory=list)
    owner: Owner = field(default_factory=Owner)
    fault_counts: dict[str, int] = field(default_factory=dict)
    """By kind, of all that there ever were."""
    seconds_lost: float = 0.0
    checkpoint_step: int | None = None
    """A checkpoint was finished in this step."""
    saves: dict[str, int] = field(default_factory=dict)
    """Newest checkpoints by path, oldest first."""
    first_step: int | None = None
    first_step_at: float | None = None
    high_step: int = 0
    high_step_at: float | None = None
    kept_in_memory: int | None = None
    """The newest step that all ranks of a world had in memory."""
    high_step_generation: Generation = NO_GENERATION
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=101))
    version: int = 0
    saved_version: int = 0
    status_saved_at: float | None = None
    status_wanted: bool = False
    write_not_before: float = 0.0
    """A recovery is on its way: its own status is due in a moment, and nothing else shall be in front of it."""
    saved_world: dict[str, object] | None = None
    is_left: bool = False
    """Nothing is known of the worlds before but what members say: the job's record is gone."""
    deferred: list[tuple[MemberId, Exited | LineMatched]] = field(default_factory=list)
    """What members said of ended ranks and lines before a new master knew the world."""
    collections: dict[str, Collection] = field(default_factory=dict)
    answered: list[Collection] = field(default_factory=list)
    ended_well: set[MemberId] = field(default_factory=set)
    """Whose pods were seen so once."""
    """Ours that are complete, until they are looked at."""
    pace: Pace = field(default_factory=Pace)
    watch: Watch | None = None
    """Of the running generation's progress."""
    ending: dict[MemberId, bool] = field(default_factory=dict)
    stirred: bool = False
    unstaffed: bool = False
    unsized: bool = False
    """What the end of the step has to look at: anything, who holds which rank index, the size of the world."""
    actions: list[Action] = field(default_factory=list)

    @property
    def generation(self) -> Generation:
        """The newest generation, for actions that belong to no other."""
        return self.world.generation if self.world is not None else Generation(self.term, self.number)

    @property
    def indexes(self) -> range:
        """The rank indexes that are wanted."""
        return range(self.spec.first_index, self.spec.first_index + self.target)

    @property
    def is_over(self) -> bool:
        return self.stage in (FINISHING, ENDED)

    @property
    def ends(self) -> bool:
        """It is over, or waits for its end: nobody comes any more."""
        return self.is_over or bool(self.stop_wanted)

    def act(self, action: Action) -> None:
        self.actions.append(action)

    def announce(
        self,
        kind: str,
        reason: str,
        member: MemberId | None = None,
        *,
        warning: bool = False,
        detail: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """One line for the user."""
        severity = "warning" if warning else "normal"
        self.act(Announce(kind, reason, self.generation, member, severity, detail))
