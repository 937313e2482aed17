"""Draining the chief, or another member whose session saves: it saves first, as late as it can.

The replacement of the chief restores the last checkpoint, and all workers repeat what they did since then. So when the
replacement is ready, the chief keeps its task until it has saved. If no replacement is ready `ASK_BEFORE` its grace
ends, it saves then and continues training; if one is ready after all, it saves once more. If it cannot save, or a
parameter server is away, it leaves like any other member.
"""

from __future__ import annotations

from functools import partial

from outrider.master.core.checkpoints import planned_save
from outrider.master.core.generation import readiness
from outrider.master.core.ps import session_saver, tally
from outrider.master.core.ps.state import CHIEF, Farewell, PsState, Task
from outrider.master.core.ps.task_adapter import let
from outrider.master.core.spec import WORKER
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.messages.checkpoints import StateSaved

ASK_BEFORE = 10.0
"""Seconds before the end of the member's grace at which it is asked to save at the latest."""


def advance(job: PsState) -> None:
    """At the end of a step."""
    is_news, job.was_away = job.was_away != bool(job.ps_away), bool(job.ps_away)
    for task in list(job.of(CHIEF, WORKER)) if is_news else tally.changed(job, CHIEF, WORKER):
        member = session_saver.saver(task)
        if member is None or not member.leaving:
            continue
        if (task.farewell is None or task.farewell.member != member.id) and not job.ps_away:
            task.farewell, member.stays_until_saved = Farewell(member.id), True
            tally.note(job, task)
        if member.stays_until_saved and task.farewell is not None and task.farewell.ends is None:
            _consider(job, task, member, task.farewell)


def _consider(job: PsState, task: Task, member: Member, farewell: Farewell) -> None:
    """Asks the leaving member to save if it is time, or lets it leave without."""
    last = None if member.leave_at is None else member.leave_at - ASK_BEFORE
    if job.ps_away:
        _let_go(job, task, member)
    elif session_saver.has_replacement(task) or (last is not None and job.now >= last and not farewell.asked):
        farewell.asked = True
        within = (
            job.spec.save_grace if member.leave_at is None else planned_save.before_end(task.state, member.leave_at)
        )
        farewell.ends = job.now + within + planned_save.SLACK
        job.deadlines.set(("leave", task.name), farewell.ends)
        session_saver.ask(job, task, f"it has to leave ({member.leaving})", within)
    elif last is not None and not farewell.asked:
        job.deadlines.set(("leave", task.name), last)


def answered(job: PsState, task: Task, message: StateSaved) -> None:
    """Handles the member's reply: it has saved, or could not."""
    _over(job, task, message.error)


def overdue(job: PsState, name: str) -> None:
    """Gives up a save whose deadline has passed; `tally.look_again` has the rules consider the task again."""
    for task in tally.look_again(job, name):
        if task.farewell is not None and task.farewell.ends is not None and task.farewell.ends <= job.now:
            _over(job, task, "it did not reply in time")


def _over(job: PsState, task: Task, error: str) -> None:
    member, farewell = task.runs, task.farewell
    if member is None or farewell is None or farewell.member != member.id or farewell.ends is None:
        return
    if member.stays_until_saved:
        if error:
            text = f"{member.id} could not save before it leaves: {error}; the last checkpoint is used."
            job.announce("StateNotSaved", text, warning=True)
        farewell.ends = None
        if session_saver.has_replacement(task):
            _let_go(job, task, member)


def _let_go(job: PsState, task: Task, member: Member) -> None:
    member.stays_until_saved = False
    let(job, task, partial(_note, task.state))


def _note(state: State) -> None:
    readiness.note_staffing(state)
    readiness.note_resize(state)
