"""A PS job: its seats, and what concerns all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from outrider.master.core.actions import Action, Announce
from outrider.master.core.spec import WORKER, JobSpec
from outrider.master.core.state.budgets import Budget
from outrider.master.core.state.crowd import Crowd
from outrider.master.core.state.hangs import Collection
from outrider.master.core.state.job import ENDED, GATHERING, State
from outrider.master.core.state.member import Member
from outrider.master.core.state.timers import Deadlines
from outrider.wire.ids import Generation, JobName, MemberId, RankIndex, Role

PS, CHIEF, EVALUATOR = Role("ps"), Role("chief"), Role("evaluator")
ROLES = (PS, CHIEF, WORKER, EVALUATOR)
"""In the order in which their members are made: who is waited for comes first."""
Key = tuple[Role, RankIndex]
NO_JOB = JobSpec(JobName(""), 0, 0, 0)


@dataclass(slots=True)
class Farewell:
    """It keeps its place until it has saved."""

    member: MemberId
    asked: bool = False
    ends: float | None = None
    """When nobody waits for its answer any more; None: none is awaited."""


@dataclass(slots=True)
class Seat:
    """One rank index of one role."""

    role: Role
    index: RankIndex
    state: State
    """The job of its one member."""
    removed: bool = False
    """The job became smaller: it goes when its member is gone."""
    served: bool = False
    """A parameter server has run here."""
    stepped_at: float = float("-inf")
    """When its last step ended, as its own report says."""
    saver: tuple[MemberId, Generation] | None = None
    """Whose script saves when it is asked to, and in which run of it."""
    farewell: Farewell | None = None
    """Of who saves and has to leave, or had to."""
    told_first: Generation | None = None
    """The run of it of which it was told that no first step comes."""
    no_turns: int = 0
    """Those of the job that are noted here."""
    marks: frozenset[str] = frozenset()
    """What `tally` has noted of it."""
    waits_since: float | None = None
    """It made steps, a parameter server was away, and it has made none since. From when on it could: None: it does."""

    @property
    def key(self) -> Key:
        return self.role, self.index

    @property
    def name(self) -> str:
        """As its address is called: `worker-0`, whichever member is there."""
        return f"{self.role}-{self.index}"

    @property
    def trains(self) -> bool:
        return self.role in (CHIEF, WORKER)

    @property
    def runs(self) -> Member | None:
        """The member whose worker process runs."""
        world = self.state.world
        if world is None or self.state.stage != "running":
            return None
        return next((self.state.members.get(each) for each in world.started), None)

    def fits(self, member: Member) -> bool:
        """It has the resources that are wanted. Of a pod that says nothing, nothing is known."""
        wanted = self.state.spec.resources
        return not wanted or not member.resources or member.resources == wanted


@dataclass(slots=True)
class PsState:
    """Before Began everything has its default."""

    next_order: int = 1
    now: float = 0.0
    term: int = 0
    spec: JobSpec = NO_JOB
    unix_offset: float = 0.0
    began_at: float = 0.0
    stage: str = GATHERING
    """`gathering` until the end begins, then `finishing` and `ended`."""
    phase: str = ""
    """Of a job that is over; else it is read from the seats."""
    message: str = ""
    exit_code: int | None = None
    target: int = 0
    """Workers that are wanted."""
    listed: bool = False
    suspended: bool = False
    seats: dict[Key, Seat] = field(default_factory=dict)
    """By role, in the order of ROLES, and rank index."""
    members: dict[MemberId, Key] = field(default_factory=dict)
    """Whose each is, or was."""
    sessions: dict[str, Key] = field(default_factory=dict)
    next_id: dict[Role, int] = field(default_factory=dict)
    """Shared with all seats: ids grow through a role."""
    restarts: Budget = field(default_factory=Budget)
    """Shared with all seats."""
    crowd: Crowd = field(default_factory=lambda: Crowd(is_shared=True))
    """Shared with all seats."""
    would: dict[str, str] = field(default_factory=dict)
    """As in State."""
    ps_away: set[Key] = field(default_factory=set)
    """Parameter servers that have served and do not now."""
    ps_back_at: float = float("-inf")
    """When the last of them served again."""
    was_away: bool = False
    """One was, when it was last considered who has to leave."""
    asked_to_save: bool = False
    """Somebody was, before the parameter server that is to move does."""
    ps_lost: str = ""
    """The last one, and why."""
    version: int = 0
    saved_at: float = float("-inf")
    saves: dict[int, dict[Key, int]] = field(default_factory=dict)
    """What is being saved: versions of each seat's status, by ours."""
    save_wanted: bool = False
    save_due: bool = False
    """A start waits for it."""
    collections: dict[str, tuple[set[Key], Collection]] = field(default_factory=dict)
    """A user's questions: whose answers are awaited, and what has come."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    """The job's own."""
    seat_deadlines: Deadlines = field(default_factory=Deadlines)
    """The next of each seat, by role and rank index."""
    touched: set[Key] = field(default_factory=set)
    """Seats that may have changed since rules began to look."""
    looked_at: set[Key] = field(default_factory=set)
    """Those at which they look, or did last."""
    marked: dict[tuple[Role, str], set[Key]] = field(default_factory=dict)
    """Seats by what is true of them (`tally`)."""
    ring: list[tuple[int, RankIndex]] = field(default_factory=list)
    """Seats whose members answer others, in order."""
    descriptions: dict[Key, str] = field(default_factory=dict)
    description: str | None = ""
    """Of all of them; None: a part of it has changed."""
    no_turns: int = 0
    """Steps of this core after which nobody could make one of his own, for want of a parameter server."""
    trained_at: float = float("-inf")
    """When the last step ended of anybody whose steps say that others should make some too."""
    late: set[Key] = field(default_factory=set)
    """Workers that should have made their first step, had others trained."""
    actions: list[Action] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.stage != GATHERING

    @property
    def generation(self) -> Generation:
        """Of the job as a whole there is none: the term says who spoke."""
        return Generation(self.term, 0)

    def of(self, *roles: Role) -> Iterator[Seat]:
        """Seats of these roles that the job still wants."""
        return (seat for seat in self.seats.values() if seat.role in roles and not seat.removed)

    def announce(self, kind: str, reason: str, *, warning: bool = False) -> None:
        """One line for the user that is about no member alone."""
        severity = "warning" if warning else "normal"
        self.actions.append(Announce(kind, reason, self.generation, None, severity))


def has_ended(seat: Seat) -> bool:
    return seat.state.stage == ENDED
