"""A parameter server is moved to a pod of another size, because its user wants it. One moves at a time, and no step is
lost.

The new pod is made first. When it is ready, the session that saves is asked to, where it can be, and the old one serves
on until a checkpoint is finished; then it stops, the new one takes its place and its address, and everybody goes on
from that checkpoint. Where none comes for as long as a resize would wait, it is moved all the same. What was wanted may
be something else by then: who has that again need not go, and a pod that is on its way with other resources is given
back.
"""

from __future__ import annotations

from functools import partial

from outrider.master.core.faults import delete_pod
from outrider.master.core.generation import readiness
from outrider.master.core.ps import session_saver, tally
from outrider.master.core.ps.state import CHIEF, PS, PsState, Seat
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
    for seat in tally.changed(job, PS):
        _reconsider(job, seat)
    moving = next(iter(tally.those(job, tally.MOVES, PS)), None)
    if moving is None:
        job.deadlines.cancel(PATIENCE)
        job.asked_to_save = False
        _begin(job)
    elif session_saver.has_replacement(moving):
        if job.deadlines.at(PATIENCE) is None:  # its pod may not have been ready when the last one was over
            job.deadlines.set(PATIENCE, job.now + job.spec.grow_patience)
        if not job.asked_to_save:
            job.asked_to_save = True
            _ask(job, moving)


# -- a checkpoint before it ---------------------------------------------------------------------------------------
def _ask(job: PsState, moving: Seat) -> None:
    """Where nobody can be, the next one that is made anyway is waited for."""
    for seat in job.of(CHIEF, WORKER):
        if session_saver.saver(seat) is not None:
            session_saver.ask(job, seat, f"{moving.name} is to move to a new pod", job.spec.save_grace)
            return


def answered(job: PsState, seat: Seat, message: StateSaved) -> None:
    """That it was saved is seen as any checkpoint is."""
    if message.error and job.asked_to_save:
        text = f"{seat.name} could not save: {message.error}; its next checkpoint is waited for."
        job.announce("StateNotSaved", text, warning=True)


def saved(job: PsState, step: int) -> None:
    """A checkpoint is finished."""
    _move(job, f"the checkpoint of step {step} is finished")


def patience_over(job: PsState, _name: str) -> None:
    _move(job, f"no checkpoint was finished in {seconds(job.spec.grow_patience)}")


def _mover(seat: Seat) -> Member | None:
    """Who is to be moved, and serves until then."""
    member = seat.runs
    return member if member is not None and member.stays_until_saved else None


def _reconsider(job: PsState, seat: Seat) -> None:
    member, wanted = _mover(seat), seat.state.spec.resources
    if member is not None and seat.fits(member):
        member.stays_until_saved = False
        let(job, seat, partial(scaling_resize.stay, seat.state, member, "its container has what is wanted again"))
    for other in list(seat.state.members.values()):
        is_spare = other.rank_index is None and other.is_usable and other.uid is not None
        if is_spare and not seat.fits(other):
            reason = f"{other.id} is made anew: its container was to have {other.resources}, and {wanted} is wanted."
            let(job, seat, partial(delete_pod.dismiss, seat.state, other, reason))


def _begin(job: PsState) -> None:
    """All serve, and all who train have gone on since the last one was away."""
    if tally.has(job, tally.UNSTEADY, PS) or tally.has(job, tally.WAITS):
        return
    seat = next(iter(tally.those(job, tally.UNFIT, PS)), None)
    member = seat.runs if seat is not None else None
    if seat is not None and member is not None:
        member.stays_until_saved = True
        why = f"its container has {member.resources}, and {seat.state.spec.resources} is wanted"
        let(job, seat, partial(scaling_resize.leave_when_replaced, seat.state, member, why))


def _move(job: PsState, why: str) -> None:
    for seat in tally.those(job, tally.MOVES, PS):
        member = _mover(seat)
        if member is not None and session_saver.has_replacement(seat):
            member.stays_until_saved = False
            text = f"{seat.name} moves from {member.id} to a new pod now: {why}."
            let(job, seat, partial(_give_way, seat, member, text))


def _give_way(seat: Seat, member: Member, text: str) -> None:
    seat.state.announce("PsMigrationStarted", text, member.id)
    readiness.note_staffing(seat.state)
    readiness.note_resize(seat.state)
