"""Handles what the platform reports about pods: they appear, change and disappear.

A pod that disappears although the master did not stop it is a fault of its member; one that failed by itself also uses
the relaunch budget. A pod that was deleted because the job became smaller, its member was replaced, or the job has
ended does not count as a fault.
"""

from __future__ import annotations

from outrider.master.core.events import PodGone, PodSeen, PodsListed
from outrider.master.core.faults import delete_pod, node_exclusion, node_rules, oom, recovery
from outrider.master.core.faults.oom import KILLED
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import observe_only, orders, readiness, unsupervised
from outrider.master.core.membership import (
    connections,
    failure_detector,
    key_mismatch,
    past_lease,
    pod_deletion,
    prior_success,
    unreached,
)
from outrider.master.core.placement import create_refused, failed_pods, pod_blocked, replicas, sidecar_exit
from outrider.master.core.placement import rank_index as placement_rank_index
from outrider.master.core.scaling import autoscaler
from outrider.master.core.scaling import resize as scaling_resize
from outrider.master.core.state.job import REBUILDING, State
from outrider.master.core.state.member import ALIVE, ENDED_WELL, FAILED, GONE, SILENT, Member
from outrider.master.core.state.occurrences import FailMember
from outrider.master.core.text import counted
from outrider.wire.ids import MemberId
from outrider.wire.messages.membership import Finish

PAST_KEPT = 64
"""The most removed members that are remembered."""
KEEPS_POD = ("MemberFailed", "MemberExcluded")
"""Faults after which the pod is kept, so that users can read its log."""
ABSENT_AFTER = 4.0
"""Multiple of `start_patience` after which a pod that never reported is deleted, counted from when it was overdue."""


def listed(state: State, event: PodsListed) -> None:
    """Handles the full list of pods: a known pod that is not in it is gone."""
    state.listed = True
    shown = {pod.member for pod in event.pods}
    failed_pods.listed(state, shown | {pod.member for pod in event.remains})
    for pod in sorted(
        event.pods, key=lambda pod: (pod.member not in state.earlier.placed, pod.phase == "terminating", pod.member)
    ):
        seen(state, pod)
    for member in [m for _id, m in sorted(state.members.items())]:
        if member.id not in shown and member.uid is not None:
            gone(state, PodGone(member.id, member.uid, "the platform no longer lists it"))
        elif member.id not in shown and state.stage != "rebuilding":
            replicas.not_shown(state, member)
    for left in event.remains:
        failed_pods.remains(state, left)
    readiness.note_staffing(state)


def seen(state: State, pod: PodSeen) -> None:
    """Handles one pod, in whatever state the platform shows it."""
    failed_pods.seen(state, pod)
    member = state.members.get(pod.member)
    if pod.member in state.placement.past or (member is not None and member.uid is not None and member.uid != pod.uid):
        if member is not None and pod.phase in ("pending", "running"):
            gone(state, PodGone(member.id, member.uid or pod.uid, "another pod has taken its name"))
        if not _is_next_of_its_name(state, pod):
            return
        del state.placement.past[pod.member]
        member = None
    if member is None and _is_known_failure(state, pod):
        failed = state.placement.past[pod.member] = _as_it_failed(state, pod)
        failed_pods.keep(state, failed)
        failed_pods.seen(state, pod)
        return
    if member is None:
        member = replicas.adopt(state, pod)
    was, is_news = (member.pod_phase, member.unschedulable), bool(pod.reason) or not member.out_of_memory
    _take_over(state, member, pod)
    if _has_failed_for_memory(state, member, pod, is_news):
        return
    if pod.reason.startswith("Restarted") and member.greeted:
        failure_detector.heard(state, member)
        text = f"The platform has restarted a container of {member.id}: {pod.reason}."
        state.announce("PodRestarted", text, member.id)
    if (member.pod_phase, member.unschedulable) != was:
        _changed(state, member, pod)
        failed_pods.seen(state, pod)
    readiness.refresh(state, member)
    if state.is_over:
        if pod.phase == ENDED_WELL:
            orders.drop_all(state, member)
        generation_job_end.appeared(state, member)


def _take_over(state: State, member: Member, pod: PodSeen) -> None:
    """Copies what the platform reports about the pod into its member."""
    unreached.note(state, member, pod)
    is_first = member.uid is None
    member.uid, member.pod_phase, member.has_controller = pod.uid, pod.phase, pod.has_controller
    if is_first and member.deleting and member.has_controller:  # dismissed while its pod was being created
        delete_pod.again(state, member.id)
    if pod.phase == ENDED_WELL:
        state.placement.ended_well.add(member.id)
    member.has_ended = pod.has_ended
    key_mismatch.note(state, member, pod)
    member.unschedulable, member.node = pod.unschedulable, pod.node
    create_refused.taken(state, member)
    node_rules.arrived(state, member)
    pod_blocked.note(state, member, pod)
    sidecar_exit.note(state, member, pod)
    if pod.grace is not None:
        _is_to_go(state, member, pod, pod.grace)
    member.memory_limit, member.out_of_memory, member.exit_code = pod.memory_limit, pod.out_of_memory, pod.exit_code
    member.resources = pod.resources or member.resources
    node_exclusion.note_room(state, member, pod)


def _has_failed_for_memory(state: State, member: Member, pod: PodSeen, is_news: bool) -> bool:
    """Fails a running member whose container ran out of memory, if its replacement may have more."""
    if pod.phase != "running" or not pod.out_of_memory or member.is_stranger or state.is_over:
        return False
    if not oom.may_have_more(state, member):
        if is_news:
            oom.explain(state, member)
        return False
    how = pod.reason or "its container was killed for that and restarted"
    fail(state, member, f"{member.id} ran out of memory: {how}; {oom.raised(state, member)}.", KILLED)
    failed_pods.seen(state, pod)
    return True


def _is_next_of_its_name(state: State, pod: PodSeen) -> bool:
    """Whether this is the successor of a past pod with the same name.

    Other controllers (a StatefulSet) give a replacement the name of the pod before it; the master's pods get the next
    id. A pod whose label was removed and set again counts as its own successor.
    """
    before = state.placement.past.get(pod.member)
    if before is not None and before.taken_out and before.uid == pod.uid:
        return pod.phase in ("pending", "running")
    is_new = before is not None and before.uid != pod.uid and pod.phase in ("pending", "running")
    return state.spec.is_adopted and is_new


def _is_known_failure(state: State, pod: PodSeen) -> bool:
    """Whether an earlier master handled this failure: announced it, charged it to a budget and replaced the pod.

    A pod that the master failed may not have ended yet.
    """
    kept = state.placement.failed_pods.get(pod.member)
    if kept is not None and kept.uid == pod.uid:
        return True
    return pod.phase == "failed" and any(f.member == pod.member and f.kind in KEEPS_POD for f in state.faults.noted)


def _as_it_failed(state: State, pod: PodSeen) -> Member:
    member = Member(pod.member, pod.role, pod.rank_index, state.now, uid=pod.uid)
    member.life, member.pod_phase, member.pod_reason, member.lost_by_fault = FAILED, pod.phase, pod.reason, True
    return member


def _changed(state: State, member: Member, pod: PodSeen) -> None:
    if pod.unschedulable:
        text = f"{member.id} cannot be scheduled: {pod.reason or 'no room'}. {_consequence(state, member)}."
        state.announce("FailedScheduling", text, member.id, warning=True)
        autoscaler.note_room(state, member)
    if pod.phase == "succeeded" and member.is_stranger and not state.is_over:
        member.finished = True
        state.announce("MemberSucceeded", f"{member.id} has ended with code 0, without supervision.", member.id)
    elif pod.phase == "succeeded" and not state.is_over and _has_run_alone(state, member):
        generation_job_end.fail(state, 1, _ran_alone(member))
    elif pod.phase == "succeeded" and not state.is_over and prior_success.was_told_elsewhere(state, member):
        prior_success.has_succeeded(state, member)
    elif pod.phase == "failed" or (pod.phase == "succeeded" and not state.is_over and not member.finished):
        code = "" if pod.exit_code is None else f" with exit code {pod.exit_code}"
        why = f"The pod of {member.id} failed{code}: {pod.reason or 'no reason given'}"
        if pod.out_of_memory and not state.is_over:
            why += f"; {oom.raised(state, member)}"
        _lost(state, member, "MemberFailed", f"{why}.")
    if pod.phase == "terminating":
        readiness.note_staffing(state)
    if pod.phase == "running" and member.overdue and not member.greeted:
        state.deadlines.set(("absent", member.id), state.now + ABSENT_AFTER * state.spec.start_patience)


def _is_to_go(state: State, member: Member, pod: PodSeen, grace: float) -> None:
    """The pod is being deleted, by a user, a controller or the platform.

    The clock behind the pod's deadline may be an hour away from the master's: a deadline that has passed by the
    master's clock is ignored, and the pod then has its whole grace from now on.
    """
    ends = state.now + grace
    if pod.ends_at is not None and pod.ends_at - state.unix_offset >= state.now:
        ends = min(ends, pod.ends_at - state.unix_offset)
    pod_deletion.is_to_go(state, member, ends)
    if not member.deleting and not state.is_over:
        scaling_resize.must_leave(state, member, pod.reason, max(ends - state.now, 0.0))


def _consequence(state: State, member: Member) -> str:
    """Whether the job waits for a member without room; O(1), because many members may lack room at once."""
    others = len(state.ready) + len(state.coming) - (member.id in state.ready or member.id in state.coming)
    least = state.spec.min_members
    if state.world is not None or others >= least:
        return "The job does not wait for it"
    return f"The job waits: a generation needs {counted(least, 'member')}, and {others} can come"


def _has_run_alone(state: State, member: Member) -> bool:
    """Whether the member's command ended without Outrider's hooks, so that it was never part of a generation.

    A member that has to leave ended for that reason, as does an evicted pod whose template had not connected yet. If a
    generation was ever formed, the hooks have worked, perhaps on members that are gone, or under an earlier master. A
    new master waits until its members report.
    """
    has_to_leave = bool(member.leaving) or member.deleting
    is_known = state.stage != REBUILDING and not state.number
    return is_known and not has_to_leave and not any(m.mode for m in state.members.values())


def _ran_alone(member: Member) -> str:
    """Why the job fails: no member was ever ready, and each relaunch would run one more script without its ranks."""
    return (
        f"The command of {member.id} has ended with code 0, and no template or launcher of any member ever connected: "
        "the command ran alone, without RANK and WORLD_SIZE. Either Outrider's hooks could not start (set "
        "OUTRIDER_DEBUG=1 to print why), or they did not reach a sidecar."
    )


def gone(state: State, event: PodGone) -> None:
    """Handles a pod that no longer exists, or in which nothing runs any more."""
    if event.remains:
        failed_pods.remains(state, event)
    else:
        failed_pods.gone(state, event.member, event.uid)
    member = state.members.get(event.member)
    if member is None or (member.uid is not None and member.uid != event.uid):
        past = state.placement.past.get(event.member)
        if past is not None:
            past.pod_phase = "gone"
        return
    if event.may_run_on and not state.is_over:
        _taken_out(state, member, event.reason)
        return
    was_expected = member.deleting or bool(member.leaving) or state.is_over or member.life == SILENT
    if was_expected:
        was_leaving = bool(member.leaving) and member.life == ALIVE
        _remove(state, member, GONE)
        readiness.stop_waiting_for(state, member)
        state.announce("MemberGone", f"{member.id} is gone: {event.reason or 'its pod was deleted'}.", member.id)
        world = state.world
        if world is not None and member.id in world.places and was_leaving and not state.is_over:
            recovery.member_lost(
                state, member, "MemberLeftEarly", f"{member.id} has left: {member.leaving or event.reason}."
            )
        readiness.note_staffing(state)
        return
    _lost(state, member, "MemberLost", f"{member.id} is lost: {event.reason or 'its pod is gone'}.")


def _taken_out(state: State, member: Member, reason: str) -> None:
    """Removes a member whose pod was taken out of the job, and stops its ranks.

    They would otherwise train beside the next generation. If the pod's label comes back, the member may too.
    """
    member.taken_out = reason
    text = f"{member.id} no longer belongs to the job: {reason}. Its ranks are stopped."
    _lost(state, member, "MemberLost", text)


def unsupervised_done(state: State) -> None:
    """At the end of a step: ends the job once all members with a key mismatch have ended with code 0.

    If one of them failed, the job begins again, and the others count as failed too.
    """
    done = [m for member_id in sorted(state.membership.strangers) if (m := state.members[member_id]).finished]
    if not done or state.is_over or unsupervised.in_the_way(state):
        return
    if not state.membership.lost_a_stranger:
        generation_job_end.succeed(
            state, f"All members that ran without supervision have ended with code 0: {', '.join(m.id for m in done)}."
        )
        return
    for member in done:
        reason = f"{member.id} has ended with code 0, but others of its generation had failed."
        _lost(state, member, "MemberFailed", reason)


def fail_as_decided(state: State, decided: FailMember) -> None:
    """Fails the member that another domain has decided to fail."""
    member = state.members.get(decided.member)
    if member is not None and not past_lease.puts_off(state, decided):
        fail(state, member, decided.reason, decided.code)


def fail(state: State, member: Member, reason: str, code: int) -> None:
    """Fails a member whose pod still runs: its containers end with `code`, and the pod is kept for its log."""
    if not observe_only.would(state, f"fail {member.id}", reason, member.id):
        _lost(state, member, "MemberFailed", reason, code)


def exclude(state: State, member: Member, reason: str, code: int, last_words: str) -> None:
    """Fails a member that did not pass the node check; `last_words` says why. Its replacement uses no budget."""
    if observe_only.would(state, f"exclude {member.id}", reason, member.id):
        return
    if member.rank_index is not None:
        state.placement.held.discard(member.rank_index)
    else:
        state.placement.spares_made -= 1
    _lost(state, member, "MemberExcluded", reason, code, last_words)


def _lost(state: State, member: Member, kind: str, reason: str, code: int = 1, last_words: str = "") -> None:
    failed = kind in KEEPS_POD
    stays = failed or bool(member.taken_out)
    if stays and member.session is not None:  # its pod is kept for its log: the sidecar must not keep it running
        orders.give(state, member, lambda order: Finish(order, code, reason, last_words), reason)
    _remove(state, member, FAILED if failed else GONE)
    member.lost_by_fault = True
    if kind == "MemberFailed":
        replicas.count_failure(state, member)
    if failed:
        failed_pods.keep(state, member)
    if not state.is_over:
        recovery.member_lost(state, member, kind, reason)


def _remove(state: State, member: Member, life: str) -> None:
    """Removes a member and remembers it among the past ones."""
    member.life = life
    failure_detector.forget(state, member)
    key_mismatch.forget(state, member)
    unreached.gone(state, member)
    orders.drop_all(state, member)
    for kind in (
        "unready",
        "patience",
        "confirm",
        "create",
        "leave",
        "absent",
        "delete",
        "unended",
        "stuck",
        "unstarted",
    ):
        state.deadlines.cancel((kind, member.id))
    connections.close(state, member, f"{member.id} has been removed.")
    readiness.refresh(state, member)
    state.coming.discard(member.id)
    placement_rank_index.remove(state, member)
    state.placement.past[member.id] = member
    state.met.pop(member.id, None)
    state.rules.forget(member.id)
    while len(state.placement.past) > PAST_KEPT:
        del state.placement.past[next(iter(state.placement.past))]
    readiness.note_staffing(state)
    state.mark_status()


def patience_over(state: State, member_id: str) -> None:
    """Stops waiting for a member that was not ready within `ready_patience`; it may be older than this master."""
    if state.world is not None and member_id in state.world.started:
        return  # its processes have run since before this master
    member = state.members.get(MemberId(member_id))
    if member is None or member.life != ALIVE or member.ready is not None or member.overdue:
        return
    member.overdue = True
    readiness.refresh(state, member)
    readiness.note_staffing(state)
    if member.cannot_start:  # PodBlocked has said so
        return
    text = f"{member.id} was not ready within {state.spec.ready_patience:.0f} s; the job no longer waits for it."
    state.announce("MemberNotReady", text, member.id, warning=True)
    if not member.greeted:
        state.deadlines.set(("absent", member.id), state.now + ABSENT_AFTER * state.spec.start_patience)


def absent(state: State, member_id: str) -> None:
    """Deletes a running pod whose sidecar has never reported, so that another one is tried."""
    member = state.members.get(MemberId(member_id))
    if member is None or member.greeted or member.uid is None or member.pod_phase != "running" or member.deleting:
        return
    if member.is_stranger or unreached.waits_for(state, member):  # the master cannot hear it, and it may well train
        return
    if member.address:  # an earlier master knew it: its peers can be asked, as for any silent member
        member.greeted, member.heard_at = True, state.now
        state.membership.crowd.note(member)
        failure_detector.watch(state, member)
    else:
        reason = f"{member.id} has never reported since it was created; its pod is deleted."
        state.announce("SilentMemberDeleted", reason, member.id, warning=True)
        delete_pod.delete(state, member, reason)
