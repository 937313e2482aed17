"""A member that stays silent, or that cannot end what runs in it, is given up: its pod is deleted.

The verdict that left it out is `replace_after` old by then, and leaving out is reversible where deleting is not. So its
peers are asked once more, or the master itself tries where there is nobody to ask, and only what nobody reaches is
deleted. A deletion that the platform refused has not happened: the member may still speak and come back.
"""

from __future__ import annotations

from master.core import orders, silence, standing
from master.core.actions import DeletePod
from master.core.state import SILENT, Doubt, Member, State, seconds
from wire.ids import MemberId

DELETE_GRACE = 5.0


def consider(state: State, member_id: str) -> None:
    """It has been silent for `replace_after`."""
    member = state.members.get(MemberId(member_id))
    if member is None or member.life != SILENT or member.uid is None or member.deleting or state.is_over:
        return
    if member.doubt is None:
        member.doubt = Doubt()
        state.doubted.add(member.id)
        silence.ask(state, member, f"{member.id} is about to be given up.")
        _look_in(state, member, silence.LOOK_AGAIN)
    elif _is_reached(member) or _is_our_own_silence(state, member):
        silence.end_doubt(state, member)
        _look_in(state, member, state.spec.silent_after)
    elif silence.has_enough_witnesses(state, member):
        silence.end_doubt(state, member)
        _give_up(state, member)
    else:
        silence.ask(state, member, f"{member.id} is about to be given up.")
        _look_in(state, member, silence.LOOK_AGAIN)


def _look_in(state: State, member: Member, delay: float) -> None:
    state.deadlines.set(("replace", member.id), state.now + delay)


def _is_reached(member: Member) -> bool:
    """It lives, and cannot speak to the master: it is kept until it can, its place is taken meanwhile."""
    return member.doubt is not None and (bool(member.doubt.reached_by) or member.doubt.own is True)


def _is_our_own_silence(state: State, member: Member) -> bool:
    """Half of the others are not heard either: the master may be the one that is cut off."""
    others, silent = silence.count_others(state, member)
    patience = silence.CUT_OFF_PATIENCE * state.spec.replace_after
    return others > 0 and 2 * silent >= others and state.now - member.heard_at < patience


def _give_up(state: State, member: Member) -> None:
    reason = f"{member.id} has been silent for {seconds(state.now - member.heard_at)}; its pod is deleted."
    state.announce("MemberGivenUp", reason, member.id, warning=True)
    delete(state, member, reason)


def unended(state: State, member_id: str) -> None:
    """A stop is long overdue, and the sidecar could not end its trainer either: in a cluster that is another user's
    process, and a template that is frozen, or stuck in the kernel, ends with its pod alone. One that may not have heard
    of the stop is not judged: its time begins anew with its next connection, or its next word (`await_stopped`)."""
    member = state.members.get(MemberId(member_id))
    if member is None or member.life == SILENT or member.uid is None or member.deleting or state.is_over:
        return
    if member.session is None or not orders.is_told_to_stop(member, member.told):
        return
    if member.doubt is not None:
        state.deadlines.set(("unended", member.id), state.now + orders.UNENDED)
        return
    reason = f"{member.id} cannot end the processes of generation {member.told}; its pod is deleted."
    state.announce("MemberGivenUp", reason, member.id, warning=True)
    delete(state, member, reason)


def delete(state: State, member: Member, reason: str) -> None:
    assert member.uid is not None
    member.deleting = True
    state.act(DeletePod(member.id, member.uid, DELETE_GRACE, state.generation, reason))
    standing.refresh(state, member)
    standing.note_staffing(state)


def deletion_failed(state: State, action: DeletePod, error: str, again_in: float) -> None:
    """One that was given up may come back until it is tried again; one that was dismissed may not."""
    member = state.members.get(action.member)
    text = f"{action.member} could not be deleted: {error}."
    state.announce("DeleteFailed", text, action.member, warning=True)
    if member is None or not member.deleting:
        return
    if member.leaving:
        state.deadlines.set(("delete", member.id), state.now + again_in)
        return
    member.deleting = False
    kind = "replace" if member.life == SILENT else "unended" if member.greeted else "absent"
    state.deadlines.set((kind, member.id), state.now + again_in)
    standing.refresh(state, member)
    standing.note_staffing(state)
