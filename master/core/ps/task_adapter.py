"""Connects the job with its tasks: events go in, actions come out, unchanged or as actions of the job.

A task does not know the others. So the job adds to its Starts what they need to say about the others, numbers its pods
among those of the role, writes one status for all tasks, and announces its own start and end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from outrider.master.core import step as core_step
from outrider.master.core.actions import Action, Announce, CreatePod, Deliver, EndJob, SaveHistory, SaveStatus, Send
from outrider.master.core.events import Event
from outrider.master.core.hangs import progress_watch
from outrider.master.core.ps import tally, tf_config
from outrider.master.core.ps.state import PsState, Task
from outrider.master.core.state.job import COMMITTING
from outrider.wire.messages.generation import Start
from outrider.wire.messages.membership import Welcome

OF_THE_JOB = {"JobStarted", "JobSucceeded", "JobFailed", "JobStopped", "MasterStarted"}
"""Event kinds that only the job as a whole emits."""


def tell(job: PsState, task: Task, event: Event) -> None:
    """Passes one event to one task."""
    catch_up(job, task)
    _pass_on(job, task, core_step.step(task.state, event, job.now))


def let(job: PsState, task: Task, make: Callable[[], None]) -> None:
    """Changes a task's state from outside, because of other tasks."""
    catch_up(job, task)
    _pass_on(job, task, core_step.change(task.state, make, job.now))


def catch_up(job: PsState, task: Task) -> None:
    """Applies to a task what was noted for all at once, before it is looked at."""
    if task.trains and not task.removed and task.no_turns < job.no_turns:
        task.no_turns = job.no_turns
        progress_watch.note_no_turn(task.state)


def _pass_on(job: PsState, task: Task, actions: list[Action]) -> None:
    tally.note(job, task)
    for action in actions:
        passed = _passed(job, task, action)
        if passed is not None:
            job.actions.append(passed)


def _passed(job: PsState, task: Task, action: Action) -> Action | None:
    match action:
        case Send(member=member, message=Start() as start):
            return replace(action, message=tf_config.completed(job, task, member, start))
        case Send(message=Welcome() as welcome):
            return replace(action, message=tf_config.welcomed(job, task, welcome))
        case CreatePod():
            job.members[action.member] = task.key
            return replace(action, wanted=tf_config.size(job, task.role), place=task.index)
        case SaveStatus():
            job.save_wanted = True
            job.save_due = job.save_due or task.state.stage == COMMITTING
            return None
        case SaveHistory():
            job.history_wanted = True
            return None
        case Announce(kind=kind) if kind in OF_THE_JOB:
            return None
        case Announce(member=None):
            return replace(action, member=next(iter(task.state.members), None))
        case Deliver():
            _collect(job, task, action)
            return None
        case EndJob():
            return None
    return action


def _collect(job: PsState, task: Task, answer: Deliver) -> None:
    """Collects the diagnostics of a task, and delivers them to the user once all tasks have replied."""
    awaited, collection = job.collections.get(answer.request, (set(), None))
    if collection is None:
        return
    awaited.discard(task.key)
    collection.bodies.update(answer.bodies)
    collection.missing.update(answer.missing)
    if awaited:
        return
    del job.collections[answer.request]
    bodies, missing = tuple(sorted(collection.bodies.items())), tuple(sorted(collection.missing))
    reason = f"{len(bodies)} of {len(bodies) + len(missing)} members gave their {collection.what}."
    job.actions.append(Deliver(answer.request, bodies, missing, job.generation, reason))
