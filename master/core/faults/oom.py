"""Raises the memory of a rank index: twice what its container had, each time that was too little.

The amount belongs to the rank index, not to the pod: each later pod of that rank index gets it too. It is a lower bound
of the container's limit, so that an edited template that allows more is followed. A container without a limit was not
stopped by one: its node was short of memory, and another pod of the same size is as good.
"""

from __future__ import annotations

from outrider.master.core import quantities
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import RankIndex

FACTOR = 2
DEFAULT_CAP = 32
"""Cap as a multiple of the template's limit, if the user set no `maxMemory`: five doublings, as many as there are
relaunches. Without a cap a leaking script would request ever more, until no node has room and the job waits forever."""


def has_own_limit(member: Member) -> bool:
    return member.memory_limit > 0


def may_have_more(state: State, member: Member) -> bool:
    """Whether the member ran out of its own limit, and its pod is ours to replace."""
    return has_own_limit(member) and not state.spec.is_adopted


def raised(state: State, member: Member) -> str:
    """Raises the memory after a container ran out of it. Returns what its replacement gets, to end a sentence."""
    index, had = member.rank_index, member.memory_limit
    if state.spec.is_adopted:
        return "raise resources.limits.memory in the pod template of the controller that creates its pods"
    if index is None or not has_own_limit(member):
        return "its replacement gets the same amount"
    most = _most(state, index)
    desired = max(FACTOR * had, state.faults.memory.get(index, 0))
    given = desired if most is None else min(desired, most)
    if given <= had:
        most_text = f"maxMemory, or {DEFAULT_CAP} times the template's limit"
        return f"its replacement gets the same maximum, {quantities.written(had)} ({most_text})"
    state.faults.memory[index] = given
    text = f"{quantities.written(given)} instead of {quantities.written(had)}"
    sentence = (
        f"{member.id} ran out of memory. Its replacement gets {text}, and a request that grows by the same factor."
    )
    state.announce("MemoryLimitRaised", sentence, member.id, warning=True)
    state.mark_status()
    return f"its replacement gets {text}"


def _most(state: State, rank_index: RankIndex | None) -> int | None:
    return state.spec.limits_of(state.spec.role_of(rank_index)).max_memory


def explain(state: State, member: Member) -> None:
    """Reports that a member ran out of memory and gets no larger pod: the reason, and what the user can do."""
    if has_own_limit(member):
        why = f"{member.id} ran out of its {quantities.written(member.memory_limit)} of memory"
        hint = f"To give it more, {raised(state, member)}."
    elif member.node:
        why = f"{member.id} has no memory limit (resources.limits.memory), and its node {member.node} ran out of memory"
        hint = "With a limit it would be replaced by a pod with more memory."
    else:
        return  # of a local job: the fault itself already names memory as its cause
    state.announce("OutOfMemory", f"{why}. Its ranks restart in place. {hint}", member.id, warning=True)


def needed(state: State, rank_index: RankIndex | None) -> int:
    """Bytes that a new pod of this rank index needs; 0: what its template has. A spare may get any rank index."""
    found = (
        max(state.faults.memory.values(), default=0) if rank_index is None else state.faults.memory.get(rank_index, 0)
    )
    most = _most(state, rank_index) if found else None
    return found if most is None else min(found, most)


KILLED = 137
"""128 + SIGKILL: the exit code of a container that the kernel killed for its memory."""
