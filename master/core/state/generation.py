"""A generation's world. It says who has which place in it, how it goes, what is saved in it and what it began from."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.master.core.state.durability import Moment
from outrider.master.core.state.stragglers import Comparison
from outrider.wire.ids import NO_GENERATION, Generation, MemberId, OrderId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import WorkerExit


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
class Reservation:
    """What a status says: this very world may begin again, with numbers up to this one (`reservations`)."""

    version: int
    """Of that status."""
    seats: tuple[tuple[Place, PodUid | None], ...]
    up_to: int


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
    ruling: tuple[str, str] = ("", "")
    """What a rule of the user's says: the action, and why."""
    is_alone: bool = False
    """A member of a PS job has no rank."""
    note: str = ""
    """What its own words do not say."""


@dataclass(slots=True)
class Fault:
    """What the user reads in the list of faults."""

    at: Moment
    kind: str
    member: MemberId | None
    reason: str
    generation: Generation
    seconds_lost: float | None = None
    node: str = ""
    """The node that this speaks against; empty where it says nothing about one (`faults.node_exclusion`)."""


@dataclass(slots=True)
class Incident:
    """One generation's end by a fault: the evidence, and what was made of it."""

    generation: Generation
    fault: Fault
    began_at: float
    failures: list[Failure] = field(default_factory=list)
    charged: bool = False
    free: bool = False
    """It costs no budget whatever the exits say: a member was lost, a port was taken."""
    again_at: float = 0.0
    """Nothing begins again before."""


@dataclass(slots=True)
class PlannedSave:
    """The script was asked to save its state (`checkpoints.planned_save`)."""

    orders: frozenset[OrderId]
    why: str
    signal: str = ""
    """By which all ranks were asked."""
    over_at: float | None = None
    """When it was saved, or known not to be."""


@dataclass(slots=True)
class Restoring:
    """Copies of a checkpoint that members are given before the world starts (`checkpoints.restore`)."""

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
    """Checkpoints in the memories of a world that runs (`checkpoints.memory_tier`)."""

    said: dict[tuple[int, bool], set[int]] = field(default_factory=dict)
    """By step, and whether it is sharded: the ranks that have it."""
    lengths: dict[int, int] = field(default_factory=dict)
    """Bytes, by rank."""
    kept: int = -1
    finished: int = -1
    """The newest step that was a finished checkpoint because every rank had it."""
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


LOADED, OVER, UNKNOWN, NOTHING_SAVED = "loaded", "started over", "unknown", "nothing saved"
"""What a world goes on from."""


@dataclass(slots=True)
class Resume:
    """What a world goes on from (`generation.resume`)."""

    path: str = ""
    saved: int = 0
    """The newest checkpoint that there was, and its step."""
    high: int = 0
    """The highest step that had been made."""
    base: int = 0
    """The step of the checkpoint that it loaded."""
    reached: int = 0
    stepping: set[MemberId] = field(default_factory=set)
    """Members that have made a step."""
    since: float | None = None
    """When the first of them was seen to have."""
    was_opened: bool = False
    """Somebody has opened a checkpoint in a way that the hooks do not know."""
    verdict: str = NOTHING_SAVED
    """Empty: not known yet."""
    stepped_at: float = 0.0
    """When the last of them was seen to have."""
    counts_from: int = 0
    """What is added to the steps that its ranks count from 0, since nobody knows where they go on."""
    passed: tuple[float, int] | None = None
    """When it was beyond the highest step, and with which one."""

    @property
    def repeated(self) -> int:
        """Steps that it has made although they had been made before, as far as that is known."""
        return 0 if self.verdict == UNKNOWN else max(0, min(self.reached, self.high) - self.base)


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
    formed_at: float
    started: set[MemberId] = field(default_factory=set)
    done: set[MemberId] = field(default_factory=set)
    """Members all of whose worker processes ended with 0."""
    waiting: set[MemberId] = field(default_factory=set)
    """While stopping: who has not yet stopped and become ready again."""
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
    resume: Resume = field(default_factory=Resume)
    order: tuple[MemberId, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.order = tuple(self.places)
