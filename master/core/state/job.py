"""Everything the master's core knows about a job, in one object that only `step` changes.

The stage says what is going on (`generation.stages` has the ways from one to another); the world says which generation
it is about:

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

from dataclasses import dataclass

from outrider.master.core.actions import Action, Announce
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.checkpoints import Checkpoints
from outrider.master.core.state.durability import Moment, durable, part, special, transient
from outrider.master.core.state.earlier import Earlier
from outrider.master.core.state.faults import Exclusion, Faults
from outrider.master.core.state.generation import Reservation, World
from outrider.master.core.state.hangs import Hangs
from outrider.master.core.state.lease import LeaseState
from outrider.master.core.state.links import Links
from outrider.master.core.state.member import Member
from outrider.master.core.state.membership import Membership
from outrider.master.core.state.nodecheck import NodeCheck
from outrider.master.core.state.occurrences import Occurrence
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
    spec: JobSpec = transient(lambda: JobSpec(JobName(""), 1, 1, 1))
    term: int = special(0)
    now: float = transient(0.0)
    unix_offset: float = transient(0.0)
    """Add it to `now` for the wall clock."""
    began_at: Moment = durable(0.0)
    """When the job began (an earlier master's time counts)."""
    began_now: float = transient(0.0)
    """When this master began."""
    stage: str = special(GATHERING)
    phase: str = special("pending")
    message: str = transient("")
    """What has happened to the job last. Why it has no world, `generation.formation` says."""
    exit_code: int | None = special(None)
    target: int = durable(0)
    listed: bool = transient(False)
    """The platform has told what it has: members may be created."""
    patient: bool = transient(True)
    """The next world waits for everyone who can come soon; after a fault the survivors go on at once instead."""
    members: dict[MemberId, Member] = special(dict)
    metrics: Metrics = special(Metrics)
    """What lines of the log have said last."""
    scaling: Scaling = part(Scaling, key="scaling")
    """Of a job that finds its own size."""
    ready: set[MemberId] = transient(set)
    coming: set[MemberId] = transient(set)
    unchecked: set[MemberId] = transient(set)
    """Those of `coming` that would be ready, but for the node check."""
    deadlines: Deadlines = transient(Deadlines)
    next_order: int = transient(1)
    number: int = durable(0, outlives_end=True)
    number_before: int = durable(0, outlives_end=True)
    """Of the last generation before the job began anew."""
    world: World | None = special(None)
    left: World | None = special(None)
    """The one before, from its end until another one is decided."""
    reserved: Reservation | None = transient(None)
    """Of the newest status that is saved."""
    reserving: list[Reservation] = transient(list)
    """Of those that are being saved: one of them may be what the next master reads."""
    met: dict[MemberId, tuple[Generation, int]] = durable(dict)
    """The newest generation that was to meet at a member, and at which of its ports: it serves no other."""
    resize: str = transient("")
    """What the world is to do at the next checkpoint, if anything: `grow from 2 to 3 members`."""
    restart_wanted: str = transient("")
    stop_wanted: str = transient("")
    """Why the user ends the job, which waits until this master knows the world and the script's state is saved."""
    slow_replaced: set[RankIndex] = durable(set)
    """Whose member was replaced for being slow."""
    nodecheck: NodeCheck = part(NodeCheck)
    hangs: Hangs = part(Hangs)
    rules: Rules = part(Rules)
    exclusion: Exclusion = part(Exclusion)
    faults: Faults = part(Faults)
    progress: Progress = part(Progress)
    checkpoints: Checkpoints = part(Checkpoints)
    status: Status = part(Status)
    earlier: Earlier = part(Earlier)
    membership: Membership = transient(Membership)
    placement: Placement = part(Placement)
    lease: LeaseState = transient(LeaseState)
    links: Links = transient(Links)
    """How members reach each other."""
    parted: dict[RankIndex, Moment] = durable(dict)
    """Whose member was replaced because it and another one could not see each other, and when."""
    checkpoint_step: int | None = transient(None)
    """A checkpoint was finished in this step."""
    ending: dict[MemberId, bool] = transient(dict)
    would: dict[str, str] = transient(dict)
    """What has been said of a job that is only observed: the sentence by what would be done."""
    stirred: bool = transient(False)
    unstaffed: bool = transient(False)
    unsized: bool = transient(False)
    """What the end of the step has to look at: anything, who holds which rank index, the size of the world."""
    actions: list[Action] = transient(list)
    occurred: list[Occurrence] = transient(list)
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
