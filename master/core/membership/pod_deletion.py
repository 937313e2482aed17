"""Deletes the pod of a member that stays silent or cannot end its processes.

The verdict that excluded the member is `replace_after` old by then; excluding is reversible, deleting is not. So peers
probe it once more, or the master itself if it has no peer, and its pod is deleted only if no probe reaches it. If the
platform refuses the deletion, the member may still be heard and return.

A pod that is being deleted may stay: its kubelet is frozen, it has a finalizer, or a process is stuck in the kernel.
Another member gets its rank index long before that. When its grace period has ended, it is deleted by force, but only
if its node is not Ready or gone, or if its kubelet itself reports that all containers have ended: otherwise the kubelet
still works on it. A pod that no controller would create again is never deleted.
"""

from __future__ import annotations

from outrider.master.core.actions import DeletePod
from outrider.master.core.faults.delete_pod import DELETE_GRACE, delete, keep
from outrider.master.core.generation import orders, readiness
from outrider.master.core.membership import failure_detector
from outrider.master.core.state.job import State
from outrider.master.core.state.member import SILENT, Member, Suspicion
from outrider.master.core.text import seconds
from outrider.wire.ids import MemberId

LEAST_GRACE = 1.0
"""The shortest grace in seconds: with 0 the platform forgets a pod before its kubelet has ended it."""
STUCK_AFTER = 10.0
"""Seconds beyond a pod's grace period that a healthy kubelet needs to report that all containers have ended."""
STUCK_AGAIN = 30.0
EMPTY = "its kubelet reports that all of its containers have ended"


def consider(state: State, member_id: str) -> None:
    """Considers the deletion of a member that has been silent for `replace_after`."""
    member = state.members.get(MemberId(member_id))
    if member is None or member.life != SILENT or member.uid is None or member.deleting or state.is_over:
        return
    if failure_detector.is_on_a_lost_node(state, member) or member.sidecar_ended:
        if member.suspicion is not None:
            failure_detector.end_suspicion(state, member)
        _give_up(state, member)
    elif member.suspicion is None:
        member.suspicion = Suspicion()
        state.membership.suspected.add(member.id)
        state.membership.crowd.note(member)
        failure_detector.probe(state, member, f"The pod of {member.id} is about to be deleted.")
        _look_in(state, member, failure_detector.LOOK_AGAIN)
    elif _is_reached(member) or _is_our_own_silence(state, member):
        failure_detector.end_suspicion(state, member)
        _look_in(state, member, state.spec.silent_after)
    elif failure_detector.witness(state, member) or failure_detector.has_enough_witnesses(state, member):
        failure_detector.end_suspicion(state, member)
        _give_up(state, member)
    else:
        failure_detector.probe(state, member, f"The pod of {member.id} is about to be deleted.")
        _look_in(state, member, failure_detector.LOOK_AGAIN)


def _look_in(state: State, member: Member, delay: float) -> None:
    state.deadlines.set(("replace", member.id), state.now + delay)


def _is_reached(member: Member) -> bool:
    """Whether a probe reaches the member: it is kept until it can reach the master, without its rank index."""
    return member.suspicion is not None and (bool(member.suspicion.reached_by) or member.suspicion.direct is True)


def _is_our_own_silence(state: State, member: Member) -> bool:
    """Whether half of the other members are silent too, so that the master itself may be cut off.

    If this member's node is not Ready, only members on Ready nodes count.
    """
    others, silent = state.membership.crowd.beside(member, bool(failure_detector.witness(state, member)))
    patience = failure_detector.CUT_OFF_PATIENCE * state.spec.replace_after
    return others > 0 and 2 * silent >= others and state.now - member.heard_at < patience


def _give_up(state: State, member: Member) -> None:
    witness = failure_detector.witness(state, member)
    silent = f"{member.id} has been silent for {seconds(state.now - member.heard_at)}"
    if member.sidecar_ended:
        silent = f"The sidecar of {member.id} {member.sidecar_ended} and is not started again"
    if not member.has_controller:
        keep(state, member, silent)
        return
    silent += f", and {witness}" if witness else ""
    is_forced = failure_detector.is_on_a_lost_node(state, member)
    reason = f"{silent}; its pod is deleted{' by force' if is_forced else ''}."
    state.announce("SilentMemberDeleted", f"{reason} {_last_seen(member)}".rstrip(), member.id, warning=True)
    grace = LEAST_GRACE if member.sidecar_ended else DELETE_GRACE
    delete(state, member, reason, 0.0 if is_forced else grace)


def _last_seen(member: Member) -> str:
    """The member's last place and state: the user's only trace after its pod and log are gone."""
    node = f" on node {member.node}" if member.node else ""
    where = f"{member.address}{node}" if member.address else node.removeprefix(" ")
    report = member.report
    if report is None:
        return f"It was last seen {'at ' if member.address else ''}{where}." if where else ""
    did = f"it was {report.state}" + (f" generation {report.generation} at step {report.step}" if report.step else "")
    return f"Last heard{f' from {where}' if where else ''}: {did}."


def will_not_start(state: State, member: Member, why: str) -> None:
    """Deletes a pod that waits for a kubelet that does not report: a new pod may start on another node."""
    if member.uid is None or member.deleting or not member.has_controller:
        return
    reason = f"{member.id} has not started, and {why}; its pod is deleted."
    state.announce("SilentMemberDeleted", reason, member.id, warning=True)
    delete(state, member, reason)


def unended(state: State, member_id: str) -> None:
    """Deletes a member whose Stop is long overdue and whose sidecar could not end its trainer either.

    In a cluster the trainer is another user's process, and a template that is frozen or stuck in the kernel ends only
    with its pod. A member that may not have received the Stop is not judged: its time starts again with its next
    connection or message (`await_stopped`).
    """
    member = state.members.get(MemberId(member_id))
    if member is None or member.life == SILENT or member.uid is None or member.deleting or state.is_over:
        return
    if member.session is None or not orders.has_stop(member, member.ordered):
        return
    if member.suspicion is not None:
        state.deadlines.set(("unended", member.id), state.now + orders.UNENDED)
        return
    if not member.has_controller:
        keep(state, member, f"{member.id} cannot end the processes of generation {member.ordered}")
        return
    reason = f"{member.id} cannot end the processes of generation {member.ordered}; its pod is deleted."
    state.announce("SilentMemberDeleted", reason, member.id, warning=True)
    delete(state, member, reason)


# -- pods that stay -----------------------------------------------------------------------------------------------
def is_to_go(state: State, member: Member, ends: float) -> None:
    """Notes that the member's pod is being deleted and should be gone by `ends`, in the core's time."""
    if member.grace_ends is None or ends < member.grace_ends:
        member.grace_ends = ends
        state.deadlines.set(("stuck", member.id), max(ends + STUCK_AFTER, state.now))


def stuck(state: State, member_id: str) -> None:
    """Handles a pod that the platform still lists after the end of its grace period."""
    member = state.members.get(MemberId(member_id))
    if member is None or member.uid is None or member.grace_ends is None or state.is_over:
        return
    readiness.stop_waiting_for(state, member)
    over = f"its grace period ended {seconds(max(state.now - member.grace_ends, 0.0))} ago"
    witness = EMPTY if member.has_ended else failure_detector.witness(state, member)
    state.deadlines.set(("stuck", member.id), state.now + STUCK_AGAIN)
    if witness and member.has_controller:
        reason = f"The pod of {member.id} is deleted by force: {over}, and {witness}."
        state.announce("PodForceDeleted", reason, member.id, warning=True)
        delete(state, member, reason, 0.0)
    elif not member.is_stuck:
        member.is_stuck = True
        why = "" if witness else ": it has a finalizer, its kubelet is not healthy, or one of its processes cannot end"
        text = f"The pod of {member.id} still exists, although {over}{why}. The job continues without it."
        state.announce("PodStuckTerminating", text, member.id, warning=True)


def deletion_failed(state: State, action: DeletePod, error: str, again_in: float) -> None:
    """Tries a refused deletion again later; until then a silent member may return, a dismissed one may not."""
    member = state.members.get(action.member)
    text = f"The pod of {action.member} could not be deleted: {error}. The master retries."
    state.announce("DeleteFailed", text, action.member, warning=True)
    if member is None or not member.deleting or member.grace_ends is not None:  # `stuck` looks at it again
        return
    if member.leaving or member.dismissed:
        state.deadlines.set(("delete", member.id), state.now + again_in)
        return
    member.deleting = False
    kind = "replace" if member.life == SILENT else "unended" if member.greeted else "absent"
    state.deadlines.set((kind, member.id), state.now + again_in)
    readiness.refresh(state, member)
    readiness.note_staffing(state)
