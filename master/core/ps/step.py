"""The core of a PS job: each event goes to its task, then the rules about all tasks apply."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from outrider.master.core import step as core_step
from outrider.master.core.actions import Action, EndJob, SaveStatus
from outrider.master.core.events import (
    ActionFailed,
    Asked,
    Began,
    CreateRejected,
    Event,
    MemberProbed,
    NodeSeen,
    OwnerEnded,
    OwnerSized,
    PodGone,
    PodSeen,
    PodsListed,
    RestartRejected,
    RestartRequested,
    ScaleRequested,
    ScalingAsked,
    SidecarDisconnected,
    SidecarSaid,
    SpecChanged,
    Stalled,
    StatusSaved,
    StopAsked,
    TurnTold,
    Woke,
)
from outrider.master.core.generation import observe_only
from outrider.master.core.ps import (
    chief_drain,
    history,
    ps_failover,
    ps_migration,
    session_saver,
    stalled_workers,
    status,
    tally,
)
from outrider.master.core.ps import job_end as ps_job_end
from outrider.master.core.ps import status_batch as ps_status_batch
from outrider.master.core.ps import tasks as ps_tasks
from outrider.master.core.ps.state import Key, PsState, Task
from outrider.master.core.ps.task_adapter import tell
from outrider.master.core.scaling import rehearsal
from outrider.master.core.state.hangs import Collection
from outrider.master.core.state.job import ENDED
from outrider.wire.ids import MemberId, RankIndex, Role
from outrider.wire.messages.checkpoints import Saved, StateSaved
from outrider.wire.messages.diagnostics import REHEARSAL
from outrider.wire.messages.membership import Hello
from outrider.wire.messages.report import Report

Listed = TypeVar("Listed", PodSeen, PodGone)


# -- the core's interface -----------------------------------------------------------------------------------------
def step(job: PsState, event: Event, now: float) -> list[Action]:
    """Handles one event; returns the resulting actions, in order."""
    job.now, job.actions = now, []
    if job.stage != ENDED:
        HANDLERS[type(event)](job, event)
        job.looked_at, job.touched = job.touched, set()
        if not job.is_over:
            ps_failover.advance(job)
            session_saver.note_savers(job)
            ps_migration.advance(job)
            chief_drain.advance(job)
            stalled_workers.advance(job)
        ps_job_end.advance(job)
        ps_status_batch.flush(job)
        history.flush(job)
        tally.settle(job)
        if job.stage == ENDED:
            job.actions.append(EndJob(job.exit_code or 0, job.generation, job.message))
    actions, job.actions = job.actions, []
    return observe_only.filtered(job, actions)


def next_deadline(job: PsState) -> float | None:
    """When the event `Woke` is due at the latest."""
    if job.stage == ENDED:
        return None
    moments = (job.deadlines.next(), job.task_deadlines.next())
    return min((moment for moment in moments if moment is not None), default=None)


def describe(job: PsState) -> str:
    """The state in a few words; the journal records each change of them as a transition."""
    return f"{job.stage} {status.phase(job)}: {job.description}"


def check(job: PsState) -> None:
    """Raises AssertionError if a task that has changed violates an invariant."""
    for task in tally.changed(job):
        elsewhere = {member: job.members.get(member, task.key) for member in task.state.members}
        if any(key != task.key for key in elsewhere.values()):
            raise AssertionError(f"a member of {task.name} has two tasks: {elsewhere}")
        core_step.check(task.state)


# -- the task of an event -----------------------------------------------------------------------------------------
def _task_of(job: PsState, member: MemberId, role: Role | None = None, index: RankIndex | None = None) -> Task | None:
    """The task of a member.

    A member that this master has not created belongs to the task that its pod names. If the pod names none, it is a
    spare of an earlier master, and gets a task of its role, preferably one without a member.
    """
    key = job.members.get(member)
    if key is None:
        role = role or Role(member.rpartition("-")[0])
        key = _unknown(job, role, index)
        if key is not None:
            job.members[member] = key
    return job.tasks.get(key) if key is not None else None


def _unknown(job: PsState, role: Role, index: RankIndex | None) -> Key | None:
    if index is not None:
        return (role, index) if (role, index) in job.tasks else None
    tasks = [task for task in job.tasks.values() if task.role == role]
    empty = [task for task in tasks if not task.state.members]
    found = next(iter([*empty, *tasks]), None)
    return found.key if found is not None else None


def _about_member(job: PsState, event: Any) -> None:
    task = _task_of(job, event.member, getattr(event, "role", None), getattr(event, "rank_index", None))
    if task is not None:
        tell(job, task, event)


def _to_all(job: PsState, event: Event) -> None:
    for task in list(job.tasks.values()):
        tell(job, task, event)


# -- events -------------------------------------------------------------------------------------------------------
def _said(job: PsState, event: SidecarSaid) -> None:
    message = event.message
    if isinstance(message, Hello):
        task = _task_of(job, message.member, message.role, message.rank_index) or next(iter(job.tasks.values()))
        job.sessions[event.session] = task.key
    key = job.sessions.get(event.session)
    if key in job.tasks:
        tell(job, job.tasks[key], event)
        if isinstance(message, Report):
            ps_failover.note_report(job, job.tasks[key], message)
        if isinstance(message, Saved) and job.tasks[key].trains:
            ps_migration.saved(job, message.step)
        if isinstance(message, StateSaved):
            ps_migration.answered(job, job.tasks[key], message)
            chief_drain.answered(job, job.tasks[key], message)


def _disconnected(job: PsState, event: SidecarDisconnected) -> None:
    key = job.sessions.pop(event.session, None)
    if key in job.tasks:
        tell(job, job.tasks[key], event)


def _listed(job: PsState, event: PodsListed) -> None:
    job.listed = True
    for pod in event.pods:
        _task_of(job, pod.member, pod.role, pod.rank_index)
    for left in event.remains:
        _task_of(job, left.member, None, left.rank_index)
    pods, remains = _by_task(job, event.pods), _by_task(job, event.remains)
    for key, task in list(job.tasks.items()):
        tell(job, task, PodsListed(tuple(pods.get(key, ())), tuple(remains.get(key, ()))))


def _by_task(job: PsState, listed: Iterable[Listed]) -> dict[Key, list[Listed]]:
    found: dict[Key, list[Listed]] = {}
    for each in listed:
        if (key := job.members.get(each.member)) is not None:
            found.setdefault(key, []).append(each)
    return found


def _action_failed(job: PsState, event: ActionFailed) -> None:
    if isinstance(event.action, SaveStatus):
        ps_status_batch.failed(job, event.error)
        return
    member = getattr(event.action, "member", None)
    task = _task_of(job, member) if member is not None else None
    if task is not None:
        tell(job, task, event)


def _refused(job: PsState, event: CreateRejected) -> None:
    task = _task_of(job, event.action.member)
    if task is not None:
        tell(job, task, event)


def _stop(job: PsState, event: StopAsked) -> None:
    if not job.is_over:
        job.announce("JobStopped", f"The job is stopped: {event.reason.rstrip('.')}.")
    _to_all(job, event)
    ps_job_end.stop(job, event.reason)


def _asked(job: PsState, event: Asked) -> None:
    tasks = dict(list(job.tasks.items())[:1]) if event.what == REHEARSAL else job.tasks
    if tasks:
        job.collections[event.request] = (set(tasks), Collection(event.request, event.what))
        for task in list(tasks.values()):
            tell(job, task, event)


def _restart_refused(job: PsState, event: RestartRejected) -> None:
    job.announce("RestartRejected", rehearsal.sentence(event.why), warning=True)


def _woke(job: PsState, event: Woke) -> None:
    for kind, name in job.deadlines.take_due(job.now):
        DEADLINES[kind](job, name)
    for task in tally.due(job):
        tell(job, task, event)


def _look_again(job: PsState, name: str) -> None:
    tally.look_again(job, name)


def _nothing(_job: PsState, _event: Any) -> None:
    """Ignores events that no PS job has: no other controller creates its pods, and autoscaling is not supported."""


HANDLERS: dict[type, Callable[[PsState, Any], None]] = {
    Began: ps_tasks.begin,
    SidecarSaid: _said,
    SidecarDisconnected: _disconnected,
    PodSeen: _about_member,
    PodGone: _about_member,
    PodsListed: _listed,
    NodeSeen: _to_all,
    CreateRejected: _refused,
    OwnerSized: _nothing,
    OwnerEnded: _nothing,
    ScalingAsked: _nothing,
    TurnTold: _nothing,
    MemberProbed: _about_member,
    StatusSaved: ps_status_batch.saved,
    ScaleRequested: lambda job, event: ps_tasks.scale(job, event.replicas),
    SpecChanged: ps_tasks.edited,
    RestartRequested: _to_all,
    RestartRejected: _restart_refused,
    StopAsked: _stop,
    Asked: _asked,
    ActionFailed: _action_failed,
    Woke: _woke,
    Stalled: _to_all,
}
DEADLINES: dict[str, Callable[[PsState, str], None]] = {
    "stuck": ps_failover.look,
    "move": ps_migration.patience_over,
    "leave": chief_drain.overdue,
    # the rules at the end of the step look at these
    "save": _nothing,
    "evaluator": _nothing,
    "first": _look_again,
}
