"""The state of one generation: its members and ranks, its progress, its saves, and what it resumed from."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.master.core.state.durability import Moment, transient
from outrider.master.core.state.stragglers import Comparison
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, OrderId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import WorkerExit


@dataclass(frozen=True, slots=True)
class Place:
    """A member's ranks in one generation."""

    member: MemberId
    role: Role
    rank_index: RankIndex
    group_rank: int
    first_rank: int
    nproc: int
    role_first_rank: int
    role_world_size: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """A status' permission to restart its generation unchanged, with numbers up to `up_to` (`reservations`)."""

    version: int
    """The version of that status."""
    seats: tuple[tuple[Place, PodUid | None], ...]
    up_to: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A worker process that ended with an error."""

    member: MemberId
    rank: int
    at: float
    exit: WorkerExit
    is_effect: bool
    """Whether it is an error of torch.distributed, caused by the end of another rank."""
    signature: str
    """The signature of the error, equal for equal errors; empty for a signal."""
    ruling: tuple[str, str] = ("", "")
    """The action of a user's rule for this failure, and why."""
    is_alone: bool = False
    """Whether the process has no rank, as a member of a PS job."""
    note: str = ""
    """An explanation that the process' own message lacks."""


@dataclass(slots=True)
class Fault:
    """A fault as it stands in the status."""

    at: Moment
    kind: str
    member: MemberId | None
    reason: str
    generation: Generation
    seconds_lost: float | None = None
    node: str = ""
    """The node that counts as suspect for this fault; empty if none does (`faults.node_exclusion`)."""
    stages: dict[str, float] = transient(dict)
    """The seconds of each stage of its recovery (`account.stages`), saved with the account: an older master refuses
    longer rows."""


@dataclass(slots=True)
class Incident:
    """The incident that ended one generation: the evidence and the verdict."""

    generation: Generation
    fault: Fault
    began_at: float
    failures: list[Failure] = field(default_factory=list)
    charged: bool = False
    free: bool = False
    """Whether it costs no budget whatever the exits say, because a member was lost or a port was in use."""
    again_at: float = 0.0
    """The moment before which no generation starts again."""


@dataclass(slots=True)
class PlannedSave:
    """A save of the script's state that the master has requested (`checkpoints.planned_save`)."""

    orders: frozenset[OrderId]
    why: str
    signal: str = ""
    """The signal by which all ranks were requested to save; empty if a function was used."""
    over_at: float | None = None
    """The moment at which the state was saved or known not to be; None before that."""


@dataclass(slots=True)
class Restoring:
    """The replicas of a checkpoint that members receive before the generation starts (`checkpoints.restore`)."""

    orders: dict[OrderId, MemberId] = field(default_factory=dict)
    """The members that are still receiving replicas, by order."""
    until: float = 0.0
    name: str = ""
    """The name of the checkpoint for users."""
    step: int = -1
    """The step of the sharded checkpoint from which the generation resumes; -1 if there is none."""
    made_in: Generation = NO_GENERATION
    unheld: dict[MemberId, int] = field(default_factory=dict)
    """The members whose partner has no replica of their part, and its bytes."""


@dataclass(slots=True)
class Keeping:
    """The in-memory checkpoints of a running generation (`checkpoints.memory_tier`)."""

    said: dict[tuple[int, bool], set[int]] = field(default_factory=dict)
    """The ranks that have a checkpoint in memory, by step and whether it is sharded."""
    lengths: dict[int, int] = field(default_factory=dict)
    """The bytes of each rank's part, by rank."""
    kept: int = -1
    finished: int = -1
    """The newest step that is a finished checkpoint because every rank has it."""
    copied: int = -1
    """The step that partners have or are receiving."""
    waiting: int = -1
    """The step to replicate next."""
    orders: dict[OrderId, MemberId] = field(default_factory=dict)
    failed: bool = False
    """Whether a replica of the step was not received."""
    reported: bool = False
    counted: dict[int, int] = field(default_factory=dict)
    """The steps that had been made at each save to the checkpoint path."""
    lacking: list[MemberId] = field(default_factory=list)
    """The members that still need the replica under way, the last one first."""
    givers: dict[OrderId, MemberId] = field(default_factory=dict)
    """The member that sends the replica, by order."""


LOADED, OVER, UNKNOWN, NOTHING_SAVED = "loaded", "started over", "unknown", "nothing saved"
"""The verdicts on what a generation resumed from."""


@dataclass(slots=True)
class Resume:
    """What a generation resumed from (`generation.resume`)."""

    path: str = ""
    saved: int = 0
    """The newest checkpoint before this generation, and its step."""
    high: int = 0
    """The highest step before this generation."""
    base: int = 0
    """The step of the checkpoint that this generation loaded."""
    reached: int = 0
    stepping: set[MemberId] = field(default_factory=set)
    """The members that have made a step."""
    since: float | None = None
    """The moment at which the first step of a member was seen; None before that."""
    was_opened: bool = False
    """Whether a rank has opened a checkpoint in a way that the hooks do not know."""
    verdict: str = NOTHING_SAVED
    """The verdict; empty if it is not known yet."""
    stepped_at: float = 0.0
    """The moment of the latest of the members' first steps."""
    counts_from: int = 0
    """The number added to steps that ranks count from 0, if it is unknown where they resumed."""
    passed: tuple[float, int] | None = None
    """The moment and number of the first step beyond the highest one; None before it."""

    @property
    def repeated(self) -> int:
        """The number of steps made again in this generation, as far as that is known."""
        return 0 if self.verdict == UNKNOWN else max(0, min(self.reached, self.high) - self.base)


@dataclass(slots=True)
class World:
    """One generation: its id, its members with their ranks, and its progress."""

    generation: Generation
    places: dict[MemberId, Place]
    """The members' ranks in the order of the group ranks; they never change."""
    address: str
    port: int
    version: int
    """The version of the status that must be saved before Start is sent."""
    world_size: int
    formed_at: float
    start_sent_at: float | None = None
    """The moment at which Start was sent; None before it, and for a generation of an earlier master."""
    started: set[MemberId] = field(default_factory=set)
    done: set[MemberId] = field(default_factory=set)
    """The members whose worker processes have all ended with 0."""
    waiting: set[MemberId] = field(default_factory=set)
    """The members of a stopping generation that have not yet stopped and become ready again."""
    made_step: bool = False
    recovered: bool = False
    lost_from: float | None = None
    """The moment of the highest step of earlier generations while time is being lost; else None."""
    comparison: Comparison = field(default_factory=Comparison)
    """The comparison of the ranks' own times, which finds stragglers."""
    saver: MemberId | None = None
    """The member whose script saves its state on request."""
    save: PlannedSave | None = None
    restoring: Restoring | None = None
    """The replicas sent before the start; None before the master knows which members lack a checkpoint."""
    keeping: Keeping = field(default_factory=Keeping)
    begins_from: tuple[int, Generation] = (-1, NO_GENERATION)
    """The save to the checkpoint path that every member had at the start, and the generation that made it."""
    resume: Resume = field(default_factory=Resume)
    order: tuple[MemberId, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.order = tuple(self.places)
