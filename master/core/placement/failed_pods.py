"""Keeps the newest `keepFailedPods` failed pods of each rank index, so that users can read their logs and specs.

The kubelet leaves an evicted or preempted pod as failed too. It counts like the others, and is deleted before those
that failed by themselves, because there is less to read in it. A kept pod must hold no resources and run no ranks: they
would train alone. So a pod in which something still runs some time after it failed is deleted; that happens if its
sidecar was never reached, or the platform restarts its containers. The saved status names the kept pods, and a new
master also finds them in the platform's list.

Pods of other controllers are kept or deleted by those.
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
"""Seconds in which the rest of a pod must end after its trainer: a sidecar that received Finish needs one."""
FINISHES = 100.0
"""Seconds in which a trainer must end after the master failed its pod: its sidecar allows it 90 (for a save)."""
GRACE = 10.0
"""Seconds of grace with which a failed pod is deleted."""
DELETE_AGAIN = 5.0
"""Seconds until a failed deletion is repeated."""


def keep(state: State, member: Member) -> None:
    """Keeps the pod of a member that has failed, as the platform shows or as the master decided.

    Once nothing in it runs any more, an older one may exceed `keepFailedPods`.
    """
    if member.uid is None or state.spec.is_adopted or state.is_over or member.id in state.placement.failed_pods:
        return
    state.placement.failed_pods[member.id] = FailedPod(member.uid, member.rank_index)
    _hide(state, member.id, member.uid)
    state.deadlines.set(("failed pod", member.id), state.now + FINISHES)


def _hide(state: State, member: MemberId, uid: PodUid) -> None:
    """Removes a failed pod from the Service: the address of its rank index, or the master's, is its replacement's."""
    if state.spec.has_addresses or state.spec.has_master:
        reason = f"{member} has failed: the address of its rank index no longer points to it."
        state.act(HidePod(member, uid, state.generation, reason))


def seen(state: State, pod: PodSeen) -> None:
    """Updates a kept pod from what the platform reports of it."""
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
        _delete(state, pod.member, kept, "the platform has restarted it, and its ranks would train alone")
    elif state.deadlines.at(key) is None and not kept.deleting:  # an earlier master failed it
        state.deadlines.set(key, state.now + FINISHES)


def remains(state: State, left: PodGone) -> None:
    """Keeps a pod that was taken from its node: nothing in it runs, and the platform lists it until it is deleted."""
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
    """Deletes a kept pod whose time to end is over, or whose last deletion failed."""
    kept = state.placement.failed_pods.get(MemberId(member_id))
    if kept is None:
        return
    kept.deleting = False
    if kept.is_over:
        trim(state)
    else:
        _delete(state, MemberId(member_id), kept, "something in it still runs and holds its resources")


def gone(state: State, member: MemberId, uid: PodUid) -> None:
    kept = state.placement.failed_pods.get(member)
    if kept is not None and kept.uid == uid:
        del state.placement.failed_pods[member]
        state.deadlines.cancel(("failed pod", member))


def listed(state: State, shown: set[MemberId]) -> None:
    """Forgets kept pods that are missing in the platform's full list: they were deleted while no master watched."""
    for member in [m for m in state.placement.failed_pods if m not in shown]:
        gone(state, member, state.placement.failed_pods[member].uid)


def deletion_failed(state: State, action: DeletePod) -> None:
    kept = state.placement.failed_pods.get(action.member)
    if kept is not None and kept.deleting:
        state.deadlines.set(("failed pod", action.member), state.now + DELETE_AGAIN)


def trim(state: State) -> None:
    """Deletes failed pods beyond `keepFailedPods`: O(failed pods), when one more is over or the user wants fewer."""
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
                f"only {counted(most, 'failed pod')} per rank index {'is' if most == 1 else 'are'} kept",
            )
            if kept.is_over:
                _delete(state, member, kept, f"{text} (keepFailedPods)")


def _age(member: MemberId) -> tuple[int, str]:
    """A sort key, oldest first: the numbers of ids only grow."""
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
