"""The state of a PS job: its tasks, and what concerns all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from outrider.master.core.actions import Action, Announce
from outrider.master.core.spec import WORKER, JobSpec
from outrider.master.core.state.budgets import Budget
from outrider.master.core.state.crowd import Crowd
from outrider.master.core.state.hangs import Collection
from outrider.master.core.state.history import EVENTS, Said
from outrider.master.core.state.job import ENDED, GATHERING, State
from outrider.master.core.state.member import Member
from outrider.master.core.state.timers import Deadlines
from outrider.wire.ids import Generation, JobName, MemberId, RankIndex, Role

PS, CHIEF, EVALUATOR = Role("ps"), Role("chief"), Role("evaluator")
ROLES = (PS, CHIEF, WORKER, EVALUATOR)
"""All roles, in the order in which their members are created: the others wait for the first ones."""
Key = tuple[Role, RankIndex]
NO_JOB = JobSpec(JobName(""), 0, 0, 0)


@dataclass(slots=True)
class Farewell:
    """The drain of a member that keeps its task until it has saved."""

    member: MemberId
    asked: bool = False
    """Whether the member was asked to save."""
    ends: float | None = None
    """The deadline of the member's reply; None: no reply is awaited."""


@dataclass(slots=True)
class Task:
    """One rank index of one role, as in TF_CONFIG: `{"type": role, "index": index}`."""

    role: Role
    index: RankIndex
    state: State
    """The state of the one-member job that runs this task."""
    removed: bool = False
    """Whether the job became smaller and no longer has this task, which is dropped once its member is gone."""
    served: bool = False
    """Whether a parameter server has ever run in this task."""
    stepped_at: float = float("-inf")
    """When the task's last step ended, by its own report."""
    saver: tuple[MemberId, Generation] | None = None
    """The member whose script saves on request, and the generation in which it registered that."""
    farewell: Farewell | None = None
    """The drain of a member that saves first, while or after it leaves."""
    reported_first: Generation | None = None
    """The generation whose missing first step was reported."""
    no_turns: int = 0
    """How many of the job's `no_turns` this task's state has noted."""
    marks: frozenset[str] = frozenset()
    """What `tally` has noted of this task."""
    waits_since: float | None = None
    """Since when a task that trained before a parameter server was away could make a step; None: it trains."""

    @property
    def key(self) -> Key:
        return self.role, self.index

    @property
    def name(self) -> str:
        """The task's name, as in its address: `worker-0`, whichever member runs it."""
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
        """Whether the member's pod has the requested resources, or does not report any."""
        requested = self.state.spec.resources
        return not requested or not member.resources or member.resources == requested


@dataclass(slots=True)
class PsState:
    """The state of a PS job; all fields have their defaults until the event Began."""

    next_order: int = 1
    now: float = 0.0
    term: int = 0
    spec: JobSpec = NO_JOB
    unix_offset: float = 0.0
    began_at: float = 0.0
    stage: str = GATHERING
    """`gathering` until the end begins, then `finishing` and `ended`."""
    phase: str = ""
    """The phase of a job that is over; before, the phase is derived from the tasks."""
    message: str = ""
    exit_code: int | None = None
    target: int = 0
    """The requested number of workers."""
    listed: bool = False
    suspended: bool = False
    tasks: dict[Key, Task] = field(default_factory=dict)
    """All tasks by role, in the order of ROLES, and rank index."""
    members: dict[MemberId, Key] = field(default_factory=dict)
    """The task of each member, present or past."""
    sessions: dict[str, Key] = field(default_factory=dict)
    next_id: dict[Role, int] = field(default_factory=dict)
    """The next member number of each role; shared with all tasks."""
    restarts: Budget = field(default_factory=Budget)
    """The restart budget; shared with all tasks."""
    crowd: Crowd = field(default_factory=lambda: Crowd(is_shared=True))
    """What is known of all members together; shared with all tasks."""
    would: dict[str, str] = field(default_factory=dict)
    """What a dry run would have done, as in State."""
    ps_away: set[Key] = field(default_factory=set)
    """Parameter servers that have run and do not run now."""
    ps_back_at: float = float("-inf")
    """When the last of the missing parameter servers was back."""
    was_away: bool = False
    """Whether a parameter server was away when draining members were last considered."""
    asked_to_save: bool = False
    """Whether a save was requested before the present move of a parameter server."""
    ps_lost: str = ""
    """The reason why the last parameter server was lost."""
    version: int = 0
    saved_at: float = float("-inf")
    saves: dict[int, dict[Key, int]] = field(default_factory=dict)
    """Writes under way: by the version of the job's status, the version of each task's."""
    save_wanted: bool = False
    save_due: bool = False
    """Whether a start waits for the write."""
    collections: dict[str, tuple[set[Key], Collection]] = field(default_factory=dict)
    """Users' requests for diagnostics: the tasks whose replies are awaited, and the replies so far."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    """The deadlines of the job as a whole."""
    task_deadlines: Deadlines = field(default_factory=Deadlines)
    """The next deadline of each task, by role and rank index."""
    touched: set[Key] = field(default_factory=set)
    """Tasks that may have changed since the rules began to look."""
    looked_at: set[Key] = field(default_factory=set)
    """Tasks at which the rules look now, or looked last."""
    marked: dict[tuple[Role, str], set[Key]] = field(default_factory=dict)
    """Tasks by what is true of them (`tally`)."""
    ring: list[tuple[int, RankIndex]] = field(default_factory=list)
    """Tasks whose members answer probes of others, in order."""
    descriptions: dict[Key, str] = field(default_factory=dict)
    description: str | None = ""
    """The description of all tasks; None: a part of it has changed."""
    no_turns: int = 0
    """Steps of this core after which no task could train, for lack of a parameter server."""
    trained_at: float = float("-inf")
    """When the last step ended of any task whose steps show that the others should make some too."""
    late: set[Key] = field(default_factory=set)
    """Workers that have made no first step in time, while no other task trained."""
    said: deque[Said] = field(default_factory=lambda: deque(maxlen=EVENTS))
    """The Events about the job as a whole."""
    history_wanted: bool = False
    """Whether a task would have written its history since it was written last."""
    history_at: float = float("-inf")
    actions: list[Action] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.stage != GATHERING

    @property
    def generation(self) -> Generation:
        """A generation with the master's term alone: the job as a whole has no generation."""
        return Generation(self.term, 0)

    def of(self, *roles: Role) -> Iterator[Task]:
        """The tasks of these roles, without removed ones."""
        return (task for task in self.tasks.values() if task.role in roles and not task.removed)

    def announce(self, kind: str, reason: str, *, warning: bool = False) -> None:
        """Emits an Event about the job as a whole."""
        severity = "warning" if warning else "normal"
        self.said.append(Said(self.now, kind, severity, None, reason))
        self.actions.append(Announce(kind, reason, self.generation, None, severity))


def has_ended(task: Task) -> bool:
    return task.state.stage == ENDED
