"""Pods that cannot start. Their image cannot be pulled, a config map is not there, or a name is none.

The kubelet goes on trying, and what is wrong is put right outside: in the registry, in a secret. So such a pod is left
alone, not replaced (another one would wait for the same thing) and not waited for; the others train where they are
enough. Users are told once a member, with the container, what it waits for and the kubelet's sentence. A job of which
no world can form for that reason does not fail: it says so, and begins when it can.
"""

from __future__ import annotations

from outrider.master.core.events import PodSeen
from outrider.master.core.generation import formation, readiness
from outrider.master.core.state.job import GATHERING, State
from outrider.master.core.state.member import Member
from outrider.master.core.text import seconds

PATIENCE = 2.0
"""Times `start_patience`: so long after the first such pod it is told that no world can form."""


def note(state: State, member: Member, pod: PodSeen) -> None:
    """The kubelet's word for it changes between two attempts, and its first sentence says the most."""
    is_new = pod.cannot_start and not member.cannot_start
    is_less = pod.cannot_start and member.cannot_start and member.pod_reason.startswith(pod.reason)
    member.cannot_start = pod.cannot_start
    member.pod_reason = member.pod_reason if is_less else pod.reason
    if not is_new:
        return
    where = f" on {pod.node}" if pod.node else ""
    text = f"{member.id} cannot start{where}: {pod.reason}. It is tried again there; nobody waits for it."
    state.announce("PodBlocked", text, member.id, warning=True)
    if state.deadlines.at(("begin", "")) is None:
        state.deadlines.set(("begin", ""), state.now + PATIENCE * state.spec.start_patience)
    state.mark_status()


def look(state: State) -> None:
    """Some pods could not start a while ago: can a world form without them?"""
    held = [m for _id, m in sorted(state.members.items()) if m.cannot_start]
    can_come = len(state.ready | state.coming)
    least = state.spec.min_members
    if state.stage != GATHERING or state.placement.suspended or not held or can_come >= least:
        return
    since = seconds(PATIENCE * state.spec.start_patience)
    text = f"For {since} {formation.no_start(state, held)}. The job goes on when they can."
    state.announce("JobCannotStart", text, warning=True)
    readiness.stir(state)
    state.mark_status()
