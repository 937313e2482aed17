"""Failed pods are kept, so that their logs and specs can be read: the newest `keepFailedPods` of each rank index.

A pod that was evicted or preempted is left as failed by its kubelet too. It is counted with them, and goes before those
that failed by themselves: there is less to be read in it. A kept pod must hold nothing: where something in it still
runs some time after it has failed, because its sidecar was never reached or the platform starts its containers again,
it is deleted. Whoever would train on in it trains alone. What was kept is in the saved status, and the platform's list
shows it to a new master anyway.

Pods of other controllers are theirs to keep.
"""

from __future__ import annotations

from outrider.master.core.actions import DeletePod, HidePod
from outrider.master.core.events import PodGone, PodSeen
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.state.placement import FailedPod
from outrider.master.core.text import counted
from outrider.wire.ids import MemberId, PodUid, RankIndex

LINGERS = 15.0
"""Seconds that the rest of a pod has to end after its trainer: a sidecar that was told to finish needs one."""
FINISHES = 100.0
"""Seconds for one that failed by our word, and whose trainer has yet to end: its sidecar allows it 90 (a save)."""
GRACE = 10.0
DELETE_AGAIN = 5.0


def keep(state: State, member: Member) -> None:
    """It has failed, as the platform shows or by our word; when it is over, an older one may be one too many."""
    if member.uid is None or state.spec.is_adopted or state.is_over or member.id in state.placement.failed_pods:
        return
    state.placement.failed_pods[member.id] = FailedPod(member.uid, member.rank_index)
    _hide(state, member.id, member.uid)
    state.deadlines.set(("failed pod", member.id), state.now + FINISHES)


def _hide(state: State, member: MemberId, uid: PodUid) -> None:
    """Where its place, or the master's, has an address, its replacement is looked for there."""
    if state.spec.has_addresses or state.spec.has_master:
        reason = f"{member} has failed: it is not reached at the address of its place any more."
        state.act(HidePod(member, uid, state.generation, reason))


def seen(state: State, pod: PodSeen) -> None:
    """A kept pod is shown once more."""
    kept = state.placement.failed_pods.get(pod.member)
    if kept is None or kept.uid != pod.uid or pod.phase == "terminating":
        return
    key = ("failed pod", pod.member)
    if pod.phase in ("failed", "succeeded") and not pod.lingers:
        state.deadlines.cancel(key)
        if not kept.is_over:
            kept.is_over = True
            trim(state)
    elif pod.phase == "failed":
        state.deadlines.set(key, min(state.now + LINGERS, state.deadlines.at(key) or float("inf")))
    elif pod.reason.startswith("Restarted"):
        _delete(state, pod.member, kept, "the platform starts it again, and it would train alone")
    elif state.deadlines.at(key) is None and not kept.deleting:  # an earlier master has failed it
        state.deadlines.set(key, state.now + FINISHES)


def remains(state: State, left: PodGone) -> None:
    """Its machine was taken from it: nothing of it runs, and the platform shows it until somebody deletes it."""
    if state.spec.is_adopted or state.is_over:
        return
    member = state.members.get(left.member)
    is_here = member is not None and member.uid == left.uid
    rank_index = member.rank_index if member is not None and is_here else left.rank_index
    if left.member not in state.placement.failed_pods:
        _hide(state, left.member, left.uid)
    kept = state.placement.failed_pods.setdefault(left.member, FailedPod(left.uid, rank_index, left.reason))
    state.deadlines.cancel(("failed pod", left.member))
    if not kept.is_over:
        kept.is_over = True
        trim(state)


def lingers(state: State, member_id: str) -> None:
    """It has had its time to end, or the last attempt to delete it failed."""
    kept = state.placement.failed_pods.get(MemberId(member_id))
    if kept is None:
        return
    kept.deleting = False
    if kept.is_over:
        trim(state)
    else:
        _delete(state, MemberId(member_id), kept, "something in it still runs, and holds what it has")


def gone(state: State, member: MemberId, uid: PodUid) -> None:
    kept = state.placement.failed_pods.get(member)
    if kept is not None and kept.uid == uid:
        del state.placement.failed_pods[member]
        state.deadlines.cancel(("failed pod", member))


def listed(state: State, shown: set[MemberId]) -> None:
    """Everything that there is: what is not in it was deleted while nobody watched."""
    for member in [m for m in state.placement.failed_pods if m not in shown]:
        gone(state, member, state.placement.failed_pods[member].uid)


def deletion_failed(state: State, action: DeletePod) -> None:
    kept = state.placement.failed_pods.get(action.member)
    if kept is not None and kept.deleting:
        state.deadlines.set(("failed pod", action.member), state.now + DELETE_AGAIN)


def trim(state: State) -> None:
    """O(failed pods), when one more is over or the user wants fewer."""
    most = state.spec.keep_failed_pods
    if most is None:
        return
    of_rank: dict[RankIndex | None, list[MemberId]] = {}
    for member in sorted(
        state.placement.failed_pods, key=lambda member: (not state.placement.failed_pods[member].taken, _age(member))
    ):
        of_rank.setdefault(state.placement.failed_pods[member].rank_index, []).append(member)
    for members in of_rank.values():
        for member in members[: max(len(members) - most, 0)]:
            kept, text = (
                state.placement.failed_pods[member],
                f"only {counted(most, 'failed pod')} a rank index are kept",
            )
            if kept.is_over:
                _delete(state, member, kept, f"{text} (keepFailedPods)")


def _age(member: MemberId) -> tuple[int, str]:
    """Ids only grow."""
    number = member.rpartition("-")[2]
    return (int(number) if number.isdigit() else 0, member)


def _delete(state: State, member: MemberId, kept: FailedPod, why: str) -> None:
    if kept.deleting:
        return
    kept.deleting = True
    state.deadlines.cancel(("failed pod", member))
    what = f"was taken from its node ({kept.taken})" if kept.taken else "has failed"
    reason = f"The pod of {member}, which {what}, is deleted: {why}."
    state.announce("FailedPodDeleted", reason, member)
    state.act(DeletePod(member, kept.uid, GRACE, state.generation, reason))
