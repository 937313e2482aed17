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

from dataclasses import dataclass, field

from outrider.master.core.actions import Action, Announce
from outrider.master.core.occurrences import Occurrence
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.checkpoints import Checkpoints
from outrider.master.core.state.earlier import Earlier
from outrider.master.core.state.faults import Exclusion, Faults
from outrider.master.core.state.generation import Reservation, World
from outrider.master.core.state.hangs import Hangs
from outrider.master.core.state.lease import LeaseState
from outrider.master.core.state.links import Links
from outrider.master.core.state.member import Member
from outrider.master.core.state.membership import Membership
from outrider.master.core.state.nodecheck import NodeCheck
from outrider.master.core.state.placement import Placement
from outrider.master.core.state.progress import Progress
from outrider.master.core.state.rules import Rules
from outrider.master.core.state.scaling import Metrics, Scaling
from outrider.master.core.state.status import Status
from outrider.master.core.state.timers import Deadlines
from outrider.wire.ids import Generation, JobName, MemberId, RankIndex

GATHERING, COMMITTING, RUNNING, STOPPING = "gathering", "committing", "running", "stopping"
REBUILDING, FINISHING, ENDED = "rebuilding", "finishing", "ended"


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
    metrics: Metrics = field(default_factory=Metrics)
    """What lines of the log have said last."""
    scaling: Scaling = field(default_factory=Scaling)
    """Of a job that finds its own size."""
    ready: set[MemberId] = field(default_factory=set)
    coming: set[MemberId] = field(default_factory=set)
    unchecked: set[MemberId] = field(default_factory=set)
    """Those of `coming` that would be ready, but for the node check."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    next_order: int = 1
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
    met: dict[MemberId, tuple[Generation, int]] = field(default_factory=dict)
    """The newest generation that was to meet at a member, and at which of its ports: it serves no other."""
    resize: str = ""
    """What the world is to do at the next checkpoint, if anything: `grow from 2 to 3 members`."""
    restart_wanted: str = ""
    stop_wanted: str = ""
    """Why the user ends the job, which waits until this master knows the world and the script's state is saved."""
    slow_replaced: set[RankIndex] = field(default_factory=set)
    """Whose member was replaced for being slow."""
    nodecheck: NodeCheck = field(default_factory=NodeCheck)
    hangs: Hangs = field(default_factory=Hangs)
    rules: Rules = field(default_factory=Rules)
    exclusion: Exclusion = field(default_factory=Exclusion)
    faults: Faults = field(default_factory=Faults)
    progress: Progress = field(default_factory=Progress)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    status: Status = field(default_factory=Status)
    earlier: Earlier = field(default_factory=Earlier)
    membership: Membership = field(default_factory=Membership)
    placement: Placement = field(default_factory=Placement)
    lease: LeaseState = field(default_factory=LeaseState)
    links: Links = field(default_factory=Links)
    """How members reach each other."""
    parted: dict[RankIndex, float] = field(default_factory=dict)
    """Whose member was replaced because it and another one could not see each other, and when."""
    checkpoint_step: int | None = None
    """A checkpoint was finished in this step."""
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
        return self.progress.steps_repeated + (self.world.resume.repeated if self.world is not None else 0)

    @property
    def ends(self) -> bool:
        """It is over, or waits for its end: nobody comes any more."""
        return self.is_over or bool(self.stop_wanted)

    def occur(self, occurrence: Occurrence) -> None:
        """Others follow it as soon as what is being handled is through."""
        self.occurred.append(occurrence)

    def mark_status(self) -> None:
        """Something that users see has changed: the status is written soon."""
        self.status.is_wanted = True

    def save_status(self, reason: str) -> None:
        """The status is written at the end of this step."""
        self.status.version += 1
        self.status.reason = reason

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
