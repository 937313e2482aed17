"""Members whose sidecar has exited for good: only the kubelet can stop their ranks, by deleting the pod.

A sidecar that is restarted costs no training: its member reconnects. If the kubelet reports that it will not be
restarted, there is nothing to wait for. Silence needs a second witness, because the network or the master may cause it;
this is the report of the kubelet that ran the sidecar, and no later message of the member can take it back. If its
ranks continued for the rest of `silent_after`, the next generation would only repeat their steps.

The order: one step deletes the pod and stops the generation, so that the kubelet ends those ranks while the survivors
end theirs; the next generation begins when the pod is gone. If it began earlier, two processes would have the same rank
for that long, and write the same checkpoint. That wait has the limit of a stop, and ends if the pod outlives its grace:
then its node is faulty too, and a longer wait would not help. The pod gets the shortest grace with which the platform
still shows it until its processes are gone: its template holds SIGTERM back for a sidecar that does not come, so a
longer grace would only lengthen the wait. A container of the pod exited by itself, so its replacement counts as that of
a failed pod.
"""

from __future__ import annotations

from outrider.master.core.events import PodSeen
from outrider.master.core.faults import recovery
from outrider.master.core.generation import readiness
from outrider.master.core.membership import failure_detector, pod_deletion
from outrider.master.core.placement import replicas
from outrider.master.core.state.job import REBUILDING, STOPPING, State
from outrider.master.core.state.member import SILENT, Member


def note(state: State, member: Member, pod: PodSeen) -> None:
    """Notes what the platform reports about the member's sidecar; one that is not restarted has exited for good."""
    if pod.sidecar_ended and not member.sidecar_ended:
        member.sidecar_ended = pod.sidecar_ended
        state.placement.orphans.add(member.id)
        readiness.refresh(state, member)
    elif pod.has_ended:
        readiness.stop_waiting_for(state, member)


def advance(state: State) -> None:
    """At the end of a step. A new master waits until it knows its generation, so that this counts as its fault."""
    if not state.placement.orphans or state.stage == REBUILDING or state.is_over:
        return
    for member_id in sorted(state.placement.orphans):
        member = state.members.get(member_id)
        if member is None or member.is_stranger:  # no sidecar of this job could stop it before either: it continues
            continue
        if not member.deleting and not member.leaving and member.id not in _done(state):
            _leave_out(state, member)
    state.placement.orphans.clear()


def _done(state: State) -> set[str]:
    """The members whose ranks have all ended with code 0: nothing runs there that could harm the others."""
    return set(state.world.done) if state.world is not None else set()


def _leave_out(state: State, member: Member) -> None:
    what = (
        "the job continues without this member, and its pod is deleted"
        if member.has_controller
        else "the job continues without this member"
    )
    reason = (
        f"The sidecar of {member.id} {member.sidecar_ended} and is not restarted, so the master cannot stop the "
        f"member's ranks: {what}."
    )
    if member.suspicion is not None:
        failure_detector.end_suspicion(state, member)
    member.life = SILENT
    readiness.refresh(state, member)
    replicas.count_failure(state, member)
    recovery.member_lost(state, member, "SidecarExited", reason)
    pod_deletion.consider(state, member.id)
    _await_its_end(state, member)


def _await_its_end(state: State, member: Member) -> None:
    world = state.world
    if world is None or state.stage != STOPPING or member.id not in world.places or not member.has_controller:
        return
    if member.stopped < world.generation and not member.has_ended:
        world.waiting.add(member.id)
