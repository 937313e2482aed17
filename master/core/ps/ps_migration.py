"""Migration of a parameter server to a pod with other resources, on the user's request; no step is lost.

One parameter server moves at a time. The new pod is created first. When it is ready, the master asks the session that
saves to do so, if it can, and the old pod serves until a checkpoint is finished. Then the old pod stops, the new one
takes its task and its address, and all tasks resume from that checkpoint. If no checkpoint is finished for as long as a
resize would wait, the server moves without one. The requested resources may change meanwhile: a server that has them
again stays, and a new pod with other resources is deleted.
"""

from __future__ import annotations

from functools import partial

from outrider.master.core.faults import delete_pod
from outrider.master.core.generation import readiness
from outrider.master.core.ps import session_saver, tally
from outrider.master.core.ps.state import CHIEF, PS, PsState, Task
from outrider.master.core.ps.task_adapter import let
from outrider.master.core.scaling import resize as scaling_resize
from outrider.master.core.spec import WORKER
from outrider.master.core.state.member import Member
from outrider.master.core.text import seconds
from outrider.wire.messages.checkpoints import StateSaved

PATIENCE = ("move", "")


def advance(job: PsState) -> None:
    """At the end of a step."""
    if job.is_over or job.suspended or not job.listed:
        return
    for task in tally.changed(job, PS):
        _reconsider(job, task)
    moving = next(iter(tally.those(job, tally.MOVES, PS)), None)
    if moving is None:
        job.deadlines.cancel(PATIENCE)
        job.asked_to_save = False
        _begin(job)
    elif session_saver.has_replacement(moving):
        if job.deadlines.at(PATIENCE) is None:  # its pod may not have been ready when the last wait ended
            job.deadlines.set(PATIENCE, job.now + job.spec.grow_patience)
        if not job.asked_to_save:
            job.asked_to_save = True
            _ask(job, moving)


# -- a checkpoint before the move ---------------------------------------------------------------------------------
def _ask(job: PsState, moving: Task) -> None:
    """Asks a session to save; if none can, the move waits for the script's next checkpoint."""
    for task in job.of(CHIEF, WORKER):
        if session_saver.saver(task) is not None:
            session_saver.ask(job, task, f"{moving.name} will move to a new pod", job.spec.save_grace)
            return


def answered(job: PsState, task: Task, message: StateSaved) -> None:
    """Reports a failed save; a successful one is handled like any checkpoint."""
    if message.error and job.asked_to_save:
        text = f"{task.name} could not save: {message.error}; the move waits for the next checkpoint."
        job.announce("StateNotSaved", text, warning=True)


def saved(job: PsState, step: int) -> None:
    """Moves the parameter server now, because a checkpoint is finished."""
    _move(job, f"the checkpoint of step {step} is finished")


def patience_over(job: PsState, _name: str) -> None:
    _move(job, f"no checkpoint was finished in {seconds(job.spec.grow_patience)}")


def _mover(task: Task) -> Member | None:
    """The member that is to be moved, and serves until then."""
    member = task.runs
    return member if member is not None and member.stays_until_saved else None


def _reconsider(job: PsState, task: Task) -> None:
    member, requested = _mover(task), task.state.spec.resources
    if member is not None and task.fits(member):
        member.stays_until_saved = False
        let(job, task, partial(scaling_resize.stay, task.state, member, "its container has the requested resources"))
    for other in list(task.state.members.values()):
        is_spare = other.rank_index is None and other.is_usable and other.uid is not None
        if is_spare and not task.fits(other):
            reason = f"{other.id} is recreated: its container would have {other.resources} instead of {requested}."
            let(job, task, partial(delete_pod.dismiss, task.state, other, reason))


def _begin(job: PsState) -> None:
    """Starts the next move if all servers are up, and all tasks have trained since the last one was away."""
    if tally.has(job, tally.UNSTEADY, PS) or tally.has(job, tally.WAITS):
        return
    task = next(iter(tally.those(job, tally.UNFIT, PS)), None)
    member = task.runs if task is not None else None
    if task is not None and member is not None:
        member.stays_until_saved = True
        why = f"its container has {member.resources}, but {task.state.spec.resources} is requested"
        let(job, task, partial(scaling_resize.leave_when_replaced, task.state, member, why))


def _move(job: PsState, why: str) -> None:
    for task in tally.those(job, tally.MOVES, PS):
        member = _mover(task)
        if member is not None and session_saver.has_replacement(task):
            member.stays_until_saved = False
            text = f"{task.name} moves from {member.id} to a new pod now: {why}."
            let(job, task, partial(_give_way, task, member, text))


def _give_way(task: Task, member: Member, text: str) -> None:
    task.state.announce("PsMigrationStarted", text, member.id)
    readiness.note_staffing(task.state)
    readiness.note_resize(task.state)
