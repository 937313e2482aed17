"""Everything the master's core knows about a job, in one object that only `step` changes.

The stage says what is going on; the world says which generation it is about:

    gathering   no world: members come, the next generation forms as soon as it may
    committing  a world is decided and its status is being saved; nobody has been told
    running     Start was sent (acknowledged or not); training
    stopping    Stop was sent; the survivors' Stopped and Ready are awaited
    rebuilding  a new master waits for the Hellos of members that an earlier one started
    finishing   the job is over and everyone is being told
    ended       EndJob was said

`act` collects what the current step wants done. The sets `ready` and `coming` are kept by
`generation.readiness.refresh` whenever a member changes, so that no question about the whole job needs a walk over its
members at every message.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.master.core.actions import Action, Announce
from outrider.master.core.events import NodeSeen
from outrider.master.core.occurrences import Occurrence
from outrider.master.core.spec import JobSpec, Rule
from outrider.master.core.state.crowd import Crowd
from outrider.master.core.state.generation import Episode, Fault, Reservation, World
from outrider.master.core.state.hangs import Collection, Pace, Watch
from outrider.master.core.state.links import Links
from outrider.master.core.state.member import Member, Placed
from outrider.master.core.state.nodecheck import Check, Finding
from outrider.master.core.state.scaling import Metrics, Scaling
from outrider.master.core.state.timers import Deadlines
from outrider.wire.ids import NO_GENERATION, Generation, JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Exited
from outrider.wire.messages.log_lines import LineMatched

GATHERING, COMMITTING, RUNNING, STOPPING = "gathering", "committing", "running", "stopping"
REBUILDING, FINISHING, ENDED = "rebuilding", "finishing", "ended"


class DataNote(NamedTuple):
    """What a rank has told of its data (`checkpoints.data_position`)."""

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
class Owner:
    """The controller that makes the pods of an adopted job (`placement.owner_scaling`)."""

    size: int | None = None
    """Pods that it wanted when it was read last."""
    asked: int | None = None
    """What it was asked for, until it has another size than before."""
    led_from: int | None = None
    """Its user has changed it, and the job, which wants so many, is to follow."""
    suspended: bool = False
    """It takes its pods and makes none until it is resumed, as a Job does that waits for its turn in a queue."""
    failures: int = 0


@dataclass(slots=True)
class Budget:
    """So many uses; one comes back per `decay` seconds without a use."""

    used: int = 0
    since: float = 0.0


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
    holders: dict[RankIndex, MemberId] = field(default_factory=dict)
    """Which member has a rank index (`placement.rank_index`)."""
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
    """When a rule was met that is not followed each time, and by whom (`faults.failure_policy`)."""
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
    """Those that are too slow, or cannot be read."""
    metrics: Metrics = field(default_factory=Metrics)
    """What lines of the log have said last."""
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
    crowd: Crowd = field(default_factory=Crowd)
    """Who is not heard beside how many others; one of all seats, where this is one of a PS job."""
    orphans: set[MemberId] = field(default_factory=set)
    """Members whose sidecar has ended for good, to be looked at in this step."""
    strangers: set[MemberId] = field(default_factory=set)
    unbound: set[MemberId] = field(default_factory=set)
    """Who may begin by itself (`unreached`)."""
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
    number_before: int = 0
    """Of the last generation before the job began anew."""
    world: World | None = None
    left: World | None = None
    """The one before, from its end until another one is decided."""
    reserved: Reservation | None = None
    """Of the newest status that is saved."""
    reserving: list[Reservation] = field(default_factory=list)
    """Of those that are being saved: one of them may be what the next master reads."""
    lapsed: bool = False
    """The Lease is not renewed (`membership.past_lease`)."""
    outranked: int = 0
    """The highest term of which a member has heard."""
    met: dict[MemberId, tuple[Generation, int]] = field(default_factory=dict)
    """The newest generation that was to meet at a member, and at which of its ports: it serves no other."""
    resize: str = ""
    """What the world is to do at the next checkpoint, if anything: `grow from 2 to 3 members`."""
    restart_wanted: str = ""
    stop_wanted: str = ""
    """Why the user ends the job, which waits until this master knows the world and the script's state is saved."""
    stop_by: float | None = None
    """When the platform ends its members by itself, if it does."""
    waits_behind: str = ""
    """An older job that lacks room as this one does: no members are made meanwhile (`placement.admission`)."""
    suspended: bool = False
    """No world and no members are wanted for now, by the user or by the owner of the pods."""
    suspend_wanted: bool = False
    """The user wants none."""
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
    prints: dict[str, int] = field(default_factory=dict)
    """Steps by the fingerprint of a checkpoint's file, oldest first; 0: of more than one step."""
    steps_repeated: int = 0
    """Of the worlds before."""
    first_step: int | None = None
    first_step_at: float | None = None
    high_step: int = 0
    high_step_at: float | None = None
    step_estimated: bool = False
    """Some of the steps may be repeated ones: it is not known where a world went on from."""
    kept_in_memory: int | None = None
    """The newest step that all ranks of a world had in memory."""
    high_step_generation: Generation = NO_GENERATION
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=101))
    version: int = 0
    saved_version: int = 0
    status_saved_at: float | None = None
    status_wanted: bool = False
    """Something that users see has changed."""
    save_reason: str = ""
    """Why the status is written at the end of this step, whenever it was written last; empty where it need not be."""
    write_not_before: float = 0.0
    """A recovery is on its way: its own status is due in a moment, and nothing else shall be in front of it."""
    saved_world: dict[str, object] | None = None
    saved_left: dict[str, object] | None = None
    """The world that was being stopped, or had been, when the status was saved."""
    saved_numbers: tuple[int, int] = (0, 0)
    """The term in which the status was saved, and up to which number it reserves that world another beginning."""
    is_left: bool = False
    """Nothing is known of the worlds before but what members say: the job's record is gone."""
    deferred: list[tuple[MemberId, Exited | LineMatched]] = field(default_factory=list)
    """What members said of ended ranks and lines before a new master knew the world."""
    collections: dict[str, Collection] = field(default_factory=dict)
    answered: list[Collection] = field(default_factory=list)
    """Ours that are complete, until they are looked at."""
    ended_well: set[MemberId] = field(default_factory=set)
    """Whose pods were seen so once."""
    pace: Pace = field(default_factory=Pace)
    watch: Watch | None = None
    """Of the running generation's progress."""
    ending: dict[MemberId, bool] = field(default_factory=dict)
    would: dict[str, str] = field(default_factory=dict)
    """What has been said of a job that is only observed: the sentence by what would be done."""
    stirred: bool = False
    unstaffed: bool = False
    unsized: bool = False
    """What the end of the step has to look at: anything, who holds which rank index, the size of the world."""
    actions: list[Action] = field(default_factory=list)
    occurred: list[Occurrence] = field(default_factory=list)
    """Which nobody has followed yet."""

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
    def all_repeated(self) -> int:
        """Steps that were made although they had been made before."""
        return self.steps_repeated + (self.world.resume.repeated if self.world is not None else 0)

    @property
    def ends(self) -> bool:
        """It is over, or waits for its end: nobody comes any more."""
        return self.is_over or bool(self.stop_wanted)

    def occur(self, occurrence: Occurrence) -> None:
        """Others follow it as soon as what is being handled is through."""
        self.occurred.append(occurrence)

    def mark_status(self) -> None:
        """Something that users see has changed: the status is written soon."""
        self.status_wanted = True

    def save_status(self, reason: str) -> None:
        """The status is written at the end of this step."""
        self.version += 1
        self.save_reason = reason

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
