"""The end of a job: every member receives Finish, the others are deleted, then EndJob follows.

The job's exit code is 0 if every rank ended with 0 or the user stopped the job. Otherwise it is the code of the first
rank to fail; for a signal 128 + its number.
"""

from __future__ import annotations

from outrider.master.core.actions import DeletePod
from outrider.master.core.generation import lifecycle, observe_only, orders, progress, readiness, stages, unsupervised
from outrider.master.core.state.job import FINISHING, STOPPING, State
from outrider.master.core.state.member import ENDED_WELL, SILENT, Member
from outrider.master.core.text import counted
from outrider.wire.messages.generation import Stop
from outrider.wire.messages.membership import Finish

FINISH_PATIENCE = 5.0
"""Seconds that members have to acknowledge Finish once nothing runs any more."""
DELETE_GRACE = 5.0


def succeed(state: State, how: str = "") -> None:
    """Ends the job as succeeded: every rank of every member ended with 0."""
    if state.is_over:
        return
    state.announce("JobSucceeded", how or ended_well("All ranks", state.progress.high_step))
    _finish(state, 0, "succeeded", "The job has succeeded.")


def ended_well(who: str, steps: int) -> str:
    """A sentence; without steps that were not seen, such as those made while there was no master."""
    after = f" after {counted(steps, 'step')}" if steps else ""
    return f"{who} ended with code 0{after}."


def fail(state: State, code: int, reason: str, traceback: str = "") -> None:
    """Ends the job as failed."""
    if state.is_over or (state.members and observe_only.would(state, "end the job as failed", reason)):
        return
    detail = (("exit_code", str(code)), *((("traceback", traceback),) if traceback else ()))
    state.announce("JobFailed", reason, warning=True, detail=detail)
    _finish(state, code or 1, "failed", reason)


def stop_now(state: State, reason: str, *, hard: bool = False) -> None:
    state.stop_wanted = ""
    state.announce("JobStopped", f"The job is stopped: {reason}" + (", without grace." if hard else "."))
    _stop_world(state, reason, hard)
    _finish(state, 0, "stopped", f"The job was stopped: {reason}.")
    if hard:
        hurry(state, reason)


def _stop_world(state: State, reason: str, hard: bool) -> None:
    """Stops the ranks with the script's grace periods: Finish alone would end all of them at once."""
    world = state.world
    if world is None:
        return
    for member_id in world.places:
        member = state.members.get(member_id)
        if member is not None and member.stopped < world.generation:
            lifecycle.stop_member(state, member, world.generation, reason, hard=hard)


def _finish(state: State, code: int, phase: str, reason: str) -> None:
    if state.world is not None:
        progress.settle(state, state.world)
    for fault in state.faults.noted:
        if fault.seconds_lost is None:
            state.counters.note_fault(fault)
    state.exit_code, state.phase, state.message = code, phase, reason
    was_stopping = state.stage == STOPPING
    stages.move(state, "job over")
    for member in state.members.values():
        if phase == "stopped" and any(isinstance(o.message, Stop) for o in member.orders.values()):
            state.ending[member.id] = False
        else:
            finish(state, member)
    spec = state.spec
    grace = spec.handler_grace + spec.save_grace if phase == "stopped" or was_stopping else 0.0
    state.deadlines.set(("finish", ""), state.now + grace + FINISH_PATIENCE)
    state.stirred = True
    state.save_status(reason)


def finish(state: State, member: Member) -> None:
    """Orders one member to finish, or deletes its pod if it never sent a Hello.

    A pod that is still being created is handled when the platform shows it.
    """
    code, reason = state.exit_code or 0, state.message
    if member.uid is None:
        return
    state.ending[member.id] = not state.lease.lapsed
    if state.lease.lapsed:  # no Finish and no deletion before the Lease is held again: `advance`
        return
    if member.pod_phase == ENDED_WELL:
        return
    if not member.greeted:
        grace = unsupervised.GRACE if member.is_stranger else 0.0
        if member.has_controller and not (member.is_stranger and member.finished):
            state.act(DeletePod(member.id, member.uid, grace, state.generation, reason))
        return
    orders.drop_starts(state, member, state.generation)
    orders.give(state, member, lambda order: Finish(order, code, reason), reason)


def appeared(state: State, member: Member) -> None:
    """Finishes a member that is seen or heard for the first time when the job is already over."""
    if state.stage == FINISHING and member.id in state.members and member.id not in state.ending:
        finish(state, member)
    state.stirred = True


def advance(state: State) -> None:
    """Orders members that have stopped to finish; when all have acknowledged that, the job is over."""
    if state.stage != FINISHING or state.lease.lapsed:
        return
    for member_id in [i for i, is_ordered in state.ending.items() if not is_ordered]:
        member = state.members.get(member_id)
        if member is None:
            del state.ending[member_id]
        elif member.life == SILENT or not any(isinstance(o.message, Stop) for o in member.orders.values()):
            finish(state, member)
    waits = _creates_pods(state) or not all(state.ending.values())
    if not waits and not any(orders.has_finish(m) and m.life == "alive" for m in state.members.values()):
        _end(state)


def _creates_pods(state: State) -> bool:
    """Whether a requested pod is not shown by the platform yet: it can only be deleted once it is."""
    requested = [m for m in state.members.values() if m.uid is None]
    return any(not m.create_failures or state.deadlines.at(("create", m.id)) is None for m in requested)


def unheard(state: State, member: Member) -> None:
    """Stops waiting for a silent member that has not finished; its pod is deleted at the end."""
    if state.stage == FINISHING and member.orders:
        reason = f"{member.id} is silent, so the end of the job does not wait for it."
        state.announce("MasterCannotReachMember", reason, member.id, warning=True)
        member.life = SILENT
        readiness.refresh(state, member)


def overdue(state: State) -> None:
    """Deletes the pods of members that have not acknowledged Finish in time."""
    if state.stage == FINISHING:
        hurry(state, "it did not acknowledge the end of the job in time")
    if state.stage == FINISHING:
        _end(state)


def hurry(state: State, reason: str) -> None:
    """Deletes the pods of all members that are still awaited; pods being created follow when they are shown."""
    if state.stage != FINISHING:
        return
    if state.lease.lapsed:  # nothing can be deleted now; `overdue` tries again once the Lease is held
        state.deadlines.set(("finish", ""), state.now)
        return
    for member in state.members.values():
        is_awaited = member.orders or not state.ending.get(member.id, True)
        if member.uid is not None and member.has_controller and is_awaited:
            why = f"{member.id} is deleted: {reason}."
            state.act(DeletePod(member.id, member.uid, 0.0, state.generation, why))
        if member.uid is not None:
            state.ending[member.id] = True
        orders.drop_all(state, member)
    state.deadlines.set(("finish", ""), state.now + FINISH_PATIENCE)
    advance(state)


def _end(state: State) -> None:
    stages.move(state, "end acknowledged")
    state.save_status("No member is left.")
    for member in state.members.values():
        if member.life == SILENT and member.uid is not None and member.has_controller:
            why = f"{member.id} is deleted: it is silent, so it cannot receive the order to finish."
            state.act(DeletePod(member.id, member.uid, 0.0, state.generation, why))
    for key in (("finish", ""), ("status", "")):
        state.deadlines.cancel(key)
