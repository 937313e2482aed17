"""Everything the master's core knows about a job, in one object that only `step` changes.

`stage` is the job's stage (`generation.stages` has the transitions), and `world` the generation that it is about:

    gathering   no generation: members come, and the next generation forms as soon as it may
    committing  a generation is decided and its status is being saved; no Start was sent
    running     Start was sent (acknowledged or not); training
    stopping    Stop was sent; the survivors' Stopped and Ready are awaited
    rebuilding  a new master waits for the Hellos of members that an earlier one started
    finishing   the job is over, and members receive Finish
    ended       EndJob was requested

`act` collects the actions of the current step. `generation.readiness.refresh` updates the sets `ready` and `coming`
whenever a member changes, so that no message costs a walk over all members.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.actions import Action, Announce
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.account import Account
from outrider.master.core.state.checkpoints import Checkpoints
from outrider.master.core.state.counters import Counters
from outrider.master.core.state.durability import Moment, durable, part, special, transient
from outrider.master.core.state.earlier import Earlier
from outrider.master.core.state.faults import Exclusion, Faults
from outrider.master.core.state.generation import Reservation, World
from outrider.master.core.state.hangs import Hangs
from outrider.master.core.state.history import QUIET, History, Said
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
    """Seconds to add to `now` for the wall clock."""
    began_at: Moment = durable(0.0)
    """The moment at which the job started, possibly under an earlier master."""
    began_now: float = transient(0.0)
    """The moment at which this master started."""
    stage: str = special(GATHERING)
    phase: str = special("pending")
    message: str = transient("")
    """What happened to the job last; why no generation forms is in `generation.formation`."""
    exit_code: int | None = special(None)
    target: int = durable(0)
    listed: bool = transient(False)
    """Whether the platform has listed its pods, so that members may be created."""
    patient: bool = transient(True)
    """Whether the next generation waits for all members that can come soon; after a fault it does not."""
    members: dict[MemberId, Member] = special(dict)
    metrics: Metrics = special(Metrics)
    """The newest metrics from lines of the log."""
    scaling: Scaling = part(Scaling, key="scaling")
    """The state of autoscaling."""
    ready: set[MemberId] = transient(set)
    coming: set[MemberId] = transient(set)
    unchecked: set[MemberId] = transient(set)
    """The coming members that would be ready except for the node check."""
    deadlines: Deadlines = transient(Deadlines)
    next_order: int = transient(1)
    number: int = durable(0, outlives_end=True)
    number_before: int = durable(0, outlives_end=True)
    """The number of the last generation before the job was started again after its end."""
    world: World | None = special(None)
    left: World | None = special(None)
    """The last generation, from its end until the next one is decided."""
    reserved: Reservation | None = transient(None)
    """The reservation in the newest saved status."""
    reserving: list[Reservation] = transient(list)
    """The reservations in statuses that are being saved; the next master may read any of them."""
    met: dict[MemberId, tuple[Generation, int]] = durable(dict)
    """The last rendezvous (generation, port) at each member; a port is used for one generation only."""
    resize: str = transient("")
    """The resize at the next checkpoint, such as `grow from 2 to 3 members`; empty if none is pending."""
    restart_wanted: str = transient("")
    stop_wanted: str = transient("")
    """Why the user stops the job; it waits until this master knows the generation and the script has saved."""
    slow_replaced: set[RankIndex] = durable(set)
    """The rank indexes whose member was replaced as a straggler."""
    nodecheck: NodeCheck = part(NodeCheck)
    hangs: Hangs = part(Hangs)
    rules: Rules = part(Rules)
    exclusion: Exclusion = part(Exclusion)
    faults: Faults = part(Faults)
    progress: Progress = part(Progress)
    checkpoints: Checkpoints = part(Checkpoints)
    history: History = special(History)
    """What a report shows of the job, beyond its status."""
    status: Status = part(Status)
    account: Account = special(Account)
    """What every second of every member was spent on."""
    counters: Counters = part(Counters, key="counters")
    """What only metrics show."""
    earlier: Earlier = part(Earlier)
    membership: Membership = transient(Membership)
    placement: Placement = part(Placement)
    lease: LeaseState = transient(LeaseState)
    links: Links = transient(Links)
    """The state of the links between members."""
    parted: dict[RankIndex, Moment] = durable(dict)
    """The rank indexes whose member was replaced after a network partition between two members, and when."""
    checkpoint_step: int | None = transient(None)
    """The step of a checkpoint that was finished in this step of the core; None if there was none."""
    ending: dict[MemberId, bool] = transient(dict)
    """The members of a job that is over, and whether each was ordered to finish."""
    would: dict[str, str] = transient(dict)
    """The dry runs reported for an observe-only job: each sentence by its action."""
    stirred: bool = transient(False)
    """Whether the end of the step must look at the job at all."""
    unstaffed: bool = transient(False)
    """Whether the end of the step must look at rank indexes and missing members."""
    unsized: bool = transient(False)
    """Whether the end of the step must look at the size of the running generation."""
    actions: list[Action] = transient(list)
    occurred: list[Occurrence] = transient(list)
    """The occurrences that are not handled yet."""

    @property
    def generation(self) -> Generation:
        """The newest generation, for actions that belong to no other."""
        return self.world.generation if self.world is not None else Generation(self.term, self.number)

    @property
    def indexes(self) -> range:
        """The desired rank indexes."""
        return range(self.spec.first_index, self.spec.first_index + self.target)

    @property
    def is_over(self) -> bool:
        return self.stage in (FINISHING, ENDED)

    @property
    def all_repeated(self) -> int:
        """The number of steps that were made again after having been made before."""
        return self.progress.steps_repeated + (self.world.resume.repeated if self.world is not None else 0)

    @property
    def ends(self) -> bool:
        """Whether the job is over or about to stop, so that no member joins any more."""
        return self.is_over or bool(self.stop_wanted)

    def occur(self, occurrence: Occurrence) -> None:
        """Notes an occurrence; its handlers run when the current one is done."""
        self.occurred.append(occurrence)

    def mark_status(self) -> None:
        """Requests that the status is written soon, because something that users see has changed."""
        self.status.is_wanted = True

    def save_status(self, reason: str) -> None:
        """Requests that the status is written at the end of this step."""
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
        """Reports one line to the user."""
        severity = "warning" if warning else "normal"
        if kind not in QUIET:
            self.history.said.append(Said(self.now, kind, severity, member, reason))
        self.counters.note_event(kind)
        self.act(Announce(kind, reason, self.generation, member, severity, detail))
