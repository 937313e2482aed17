"""Pods that the platform will not make. A quota is used up, a policy forbids them, or their namespace is being deleted.

A request that got lost is repeated within seconds (`placement.replicas.creation_failed`). One that was refused would be
refused again, so it is repeated slowly, told once for all members that are refused alike, and nobody waits for the pod.
Where no pod will ever be made the job asks for none any more: it ends with its namespace.
"""

from __future__ import annotations

import re

from outrider.master.core.events import CreateRejected
from outrider.master.core.generation import readiness
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member

FIRST_AGAIN = 5.0
SLOWEST = 60.0
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
        _tell(state, member, event.reason)
    readiness.refresh(state, member)
    state.mark_status()


def _close(state: State, reason: str) -> None:
    if not state.placement.closed:
        state.placement.closed = reason
        state.announce("NamespaceTerminating", f"No pod can be made for this job any more: {reason}.", warning=True)


def _tell(state: State, member: Member, reason: str) -> None:
    """Used amounts and names of pods differ from one refusal to the next."""
    same = NUMBERS.sub("", reason)
    if same not in state.placement.refusals:
        state.placement.refusals.add(same)
        text = (
            f"{member.id} is refused by the cluster: {reason}. Nobody waits for it, and it is asked for again slowly."
        )
        state.announce("CreateRejected", text, member.id, warning=True)


def taken(state: State, member: Member) -> None:
    """A pod that had been refused is there: what is refused from now on is news."""
    if member.create_failures:
        member.create_failures = 0
        state.placement.refusals.clear()
