"""How much memory a rank index needs: twice what its container had, each time that was too little.

The amount belongs to the rank index, not to the pod: whoever takes the place later, for whatever reason, gets it too.
It is what the container's limit must be at the least, so that a template that was edited to allow more is followed. Who
has no limit was not stopped by one: there the node was short, and another pod of the same size is as good.
"""

from __future__ import annotations

from outrider.master.core import quantities
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import RankIndex

FACTOR = 2
DEFAULT_CAP = 32
"""Times the template's limit, where the user gave no `maxMemory`: five doublings, as many as there are relaunches. A
script that leaks would otherwise ask for ever more, until no node has room and its job waits for ever."""


def has_own_limit(member: Member) -> bool:
    return member.memory_limit > 0


def may_have_more(state: State, member: Member) -> bool:
    """Its pod is ours to replace, and it was its own limit that ended it."""
    return has_own_limit(member) and not state.spec.is_adopted


def raised(state: State, member: Member) -> str:
    """Its container has run out of memory: what its replacement gets, as the end of a sentence."""
    index, had = member.rank_index, member.memory_limit
    if state.spec.is_adopted:
        return "raise resources.limits.memory in the pod template of the controller that makes its pods"
    if index is None or not has_own_limit(member):
        return "its replacement gets as much as it had"
    most = _most(state, index)
    wanted = max(FACTOR * had, state.faults.memory.get(index, 0))
    given = wanted if most is None else min(wanted, most)
    if given <= had:
        most_text = f"maxMemory, or {DEFAULT_CAP} times the template's"
        return f"it had {quantities.written(had)}, and that is all that it may have ({most_text})"
    state.faults.memory[index] = given
    text = f"{quantities.written(given)} instead of {quantities.written(had)}"
    state.announce("MemoryLimitRaised", f"The replacement of {member.id} gets {text} of memory, and as many times its "
                                   f"request, because {member.id} ran out of it.", member.id, warning=True)  # fmt: skip
    state.mark_status()
    return f"its replacement gets {text}"


def _most(state: State, rank_index: RankIndex | None) -> int | None:
    return state.spec.limits_of(state.spec.role_of(rank_index)).max_memory


def explain(state: State, member: Member) -> None:
    """It has run out of memory, and no larger pod is made: why not, and what its user can do."""
    if has_own_limit(member):
        why = f"{member.id} has run out of its {quantities.written(member.memory_limit)} of memory"
        hint = f"To give it more, {raised(state, member)}."
    elif member.node:
        why = f"{member.id} has no memory limit (resources.limits.memory), so that its node {member.node} was short"
        hint = "With a limit it would be replaced by a pod with more."
    else:
        return  # a local job's: that it was killed for memory says all there is
    state.announce("OutOfMemory", f"{why}: its ranks begin again in place. {hint}", member.id, warning=True)


def needed(state: State, rank_index: RankIndex | None) -> int:
    """What a new pod of this rank index is to have; 0: what its template says. A spare can take any place."""
    found = (
        max(state.faults.memory.values(), default=0) if rank_index is None else state.faults.memory.get(rank_index, 0)
    )
    most = _most(state, rank_index) if found else None
    return found if most is None else min(found, most)


KILLED = 137
"""128 + SIGKILL: as a container ends that the kernel has ended for its memory."""
