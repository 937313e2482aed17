"""Members whose sidecar has ended for good: nobody can stop their ranks any more but the kubelet, with their pod.

Losing a sidecar stops no training where it is started again: that is a reconnect. Where the kubelet says that it is
not, nothing is left to wait for. Silence needs a witness because it may be the network's or the master's; this is the
word of who ran it, and no later word of the member can take it back. To let its ranks train on for the rest of
`silent_after` would gain nothing but steps that the next world repeats.

The order: the pod is deleted and the world is stopped in one step, so that the kubelet ends those ranks while the
survivors end theirs; and the next world begins when the pod is gone. Were it to begin before, two ranks would hold the
same number for that long, and write the same checkpoint. That wait is bounded like a stop's, and ends where the pod
stays beyond its grace: then its node is not well either, and no order would be of use. The pod gets the least grace
with which the platform still shows it until its processes are gone: its template holds SIGTERM back for a sidecar
that does not come, so that a longer one would only lengthen the wait. A container of the pod has ended by itself, and
so its replacement counts as one of a failed pod.
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
    """What the platform says of its sidecar; an end without a new start is for ever."""
    if pod.sidecar_ended and not member.sidecar_ended:
        member.sidecar_ended = pod.sidecar_ended
        state.placement.orphans.add(member.id)
        readiness.refresh(state, member)
    elif pod.has_ended:
        readiness.stop_waiting_for(state, member)


def advance(state: State) -> None:
    """At the end of a step. A new master knows its world first, so that this is a fault of it."""
    if not state.placement.orphans or state.stage == REBUILDING or state.is_over:
        return
    for member_id in sorted(state.placement.orphans):
        member = state.members.get(member_id)
        if member is None or member.is_stranger:  # nobody here could stop it before either: it trains on
            continue
        if not member.deleting and not member.leaving and member.id not in _done(state):
            _leave_out(state, member)
    state.placement.orphans.clear()


def _done(state: State) -> set[str]:
    """Nothing runs there that could harm the others, and they go on to their own end."""
    return set(state.world.done) if state.world is not None else set()


def _leave_out(state: State, member: Member) -> None:
    what = "it is left out, and its pod is deleted" if member.has_controller else "it is left out"
    reason = (
        f"The sidecar of {member.id} {member.sidecar_ended} and is not started again, so that nobody can stop what "
        f"runs there: {what}."
    )
    if member.doubt is not None:
        failure_detector.end_doubt(state, member)
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
