"""Pods that cannot start: their image cannot be pulled, a config map is missing, or a name is invalid.

The kubelet keeps retrying, and the cause is mended outside the pod: in the registry, in a secret. So the master neither
replaces such a pod (another one would wait for the same thing) nor waits for it; the other members train if they are
enough. One Event per member has the container, what it waits for, and the kubelet's sentence. A job that can form no
generation for that reason does not fail: it emits an Event, and begins when it can.
"""

from __future__ import annotations

from outrider.master.core.events import PodSeen
from outrider.master.core.generation import formation, readiness
from outrider.master.core.state.job import GATHERING, State
from outrider.master.core.state.member import Member
from outrider.master.core.text import seconds

PATIENCE = 2.0
"""Multiple of `start_patience` after the first blocked pod at which `JobCannotStart` is emitted."""


def note(state: State, member: Member, pod: PodSeen) -> None:
    """Updates whether the pod is blocked, and why.

    The kubelet's reason changes between two attempts; the first sentence says the most, so a shorter one is ignored.
    """
    is_new = pod.cannot_start and not member.cannot_start
    is_less = pod.cannot_start and member.cannot_start and member.pod_reason.startswith(pod.reason)
    member.cannot_start = pod.cannot_start
    member.pod_reason = member.pod_reason if is_less else pod.reason
    if not is_new:
        return
    where = f" on node {pod.node}" if pod.node else ""
    text = (
        f"{member.id} cannot start{where}: {pod.reason}. The kubelet keeps retrying; the job does not wait "
        f"for {member.id}."
    )
    state.announce("PodBlocked", text, member.id, warning=True)
    if state.deadlines.at(("begin", "")) is None:
        state.deadlines.set(("begin", ""), state.now + PATIENCE * state.spec.start_patience)
    state.mark_status()


def look(state: State) -> None:
    """Reports blocked pods if no generation can form without them."""
    blocked = [m for _id, m in sorted(state.members.items()) if m.cannot_start]
    can_come = len(state.ready | state.coming)
    least = state.spec.min_members
    if state.stage != GATHERING or state.placement.suspended or not blocked or can_come >= least:
        return
    since = seconds(PATIENCE * state.spec.start_patience)
    text = f"After {since}, {formation.no_start(state, blocked)}. The job continues once they can start."
    state.announce("JobCannotStart", text, warning=True)
    readiness.stir(state)
    state.mark_status()
