"""Deletes a member's pod, or keeps it if no controller would create another one."""

from __future__ import annotations

from outrider.master.core.actions import DeletePod
from outrider.master.core.generation import observe_only, readiness
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import MemberId

DELETE_GRACE = 5.0


def keep(state: State, member: Member, why: str) -> None:
    if not member.is_stuck:
        member.is_stuck = True
        text = f"{why}; its pod is not deleted, because no controller would create another one. Delete it yourself."
        state.announce("PodNotDeleted", text, member.id, warning=True)


def dismiss(state: State, member: Member, reason: str, grace: float = DELETE_GRACE) -> None:
    """Removes a member that may work and be heard, because of what it did or where it runs."""
    if not state.spec.observed:
        member.dismissed = reason
    delete(state, member, reason, grace)


def delete(state: State, member: Member, reason: str, grace: float = DELETE_GRACE) -> None:
    assert member.uid is not None
    if observe_only.would(state, f"delete the pod of {member.id}", reason, member.id):
        return
    member.deleting = True
    state.act(DeletePod(member.id, member.uid, grace, state.generation, reason))
    readiness.refresh(state, member)
    readiness.note_staffing(state)


def again(state: State, member_id: str) -> None:
    """Deletes a pod again: the API server was unreachable, or the pod was still being created at the first try."""
    member = state.members.get(MemberId(member_id))
    if member is not None and member.deleting and member.uid is not None:
        is_left = f"{member.id} is no longer part of the job: {member.leaving}." if member.leaving else ""
        reason = member.dismissed or is_left or f"The pod of {member.id} still exists, so it is deleted again."
        state.act(DeletePod(member.id, member.uid, DELETE_GRACE, state.generation, reason))
