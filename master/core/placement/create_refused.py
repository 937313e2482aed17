"""Pods that the platform refuses to create: quota used up, forbidden by a policy, or the namespace is terminating.

A request that got lost is repeated within seconds (`placement.replicas.creation_failed`). A refused one would be
refused again, so it is repeated slowly, the job does not wait for the pod, and one Event covers all members that are
refused for the same reason. If the refusal is final, the job creates no more pods: it ends with its namespace.
"""

from __future__ import annotations

import re

from outrider.master.core.events import CreateRejected
from outrider.master.core.generation import readiness
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member

FIRST_AGAIN = 5.0
"""Seconds from the first refusal to the next request; each further refusal doubles them."""
SLOWEST = 60.0
"""The most seconds between two requests for a refused pod."""
NUMBERS = re.compile(r"\d+")


def refused(state: State, event: CreateRejected) -> None:
    member = state.members.get(event.action.member)
    if member is None or member.uid is not None:
        return
    member.create_failures += 1
    member.cannot_start = True
    member.pod_reason = event.reason
    if event.is_final:
        _close(state, event.reason)
    else:
        delay = min(FIRST_AGAIN * 2 ** (member.create_failures - 1), SLOWEST)
        state.deadlines.set(("create", member.id), state.now + delay)
        _announce(state, member, event.reason)
    readiness.refresh(state, member)
    state.mark_status()


def _close(state: State, reason: str) -> None:
    if not state.placement.closed:
        state.placement.closed = reason
        state.announce("NamespaceTerminating", f"The job can create no more pods: {reason}.", warning=True)


def _announce(state: State, member: Member, reason: str) -> None:
    """Once a reason, compared without its numbers: used amounts and pod names differ from one refusal to the next."""
    same = NUMBERS.sub("", reason)
    if same not in state.placement.refusals:
        state.placement.refusals.add(same)
        text = f"The cluster refuses to create {member.id}: {reason}. The job does not wait for it and retries slowly."
        state.announce("CreateRejected", text, member.id, warning=True)


def taken(state: State, member: Member) -> None:
    """Forgets the refusals when a refused pod exists after all, so that the next refusal emits an Event again."""
    if member.create_failures:
        member.create_failures = 0
        state.placement.refusals.clear()
