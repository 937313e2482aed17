"""Replaces a member whose rank ended in a way that needs another pod, though the present pod still works.

That is if the kernel killed the rank for its container's memory, or if a rule of the user requires it. The template or
launcher continues, so only its hooks can report that a container was too small, and the same container would run out of
memory again. So the master fails the member itself: its container ends with 137, its pod stays to be inspected, and its
replacement gets more memory (`faults.oom`). If the pod is another controller's, or has no limit of its own, the ranks
restart in place.
"""

from __future__ import annotations

from outrider.master.core.faults import delete_pod, error_signature, failure_policy, node_exclusion, oom
from outrider.master.core.spec import REPLACE, REPLACE_NODE
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.master.core.state.occurrences import FailMember
from outrider.wire.messages.generation import Exited


def exited(state: State, member: Member, message: Exited) -> None:
    """Replaces the member if an exit requires it, after `recovery` has noted the fault."""
    world = state.world
    if state.is_over or world is None or world.generation != message.generation or member.id not in world.places:
        return
    for end in message.exits:
        if member.id not in state.members or member.deleting:
            return
        rank = world.places[member.id].first_rank + end.local_rank
        action, why = failure_policy.of_exit(state, world.generation, member, rank, end)
        sentence = f"Rank {rank} on {member.id} {error_signature.describe(end)}"
        if action in (REPLACE, REPLACE_NODE):
            follow(state, member, action, f"{sentence}: {why}", error_signature.exit_code(end))
        elif not action and end.out_of_memory:
            _ran_out(state, member, sentence)


# -- rules of the user --------------------------------------------------------------------------------------------
def follow(state: State, member: Member, action: str, reason: str, code: int) -> None:
    """Replaces the member by another pod; its own container ends with this code."""
    if action == REPLACE_NODE:
        node_exclusion.condemn(state, member.node, reason)
    if state.spec.is_adopted and not member.has_controller:
        delete_pod.keep(state, member, reason)
    elif state.spec.is_adopted:
        delete_pod.dismiss(state, member, f"{reason}; its controller creates another pod.")
    else:
        state.occur(FailMember(member.id, f"{reason}.", code))


# -- memory -------------------------------------------------------------------------------------------------------
def _ran_out(state: State, member: Member, what: str) -> None:
    if oom.may_have_more(state, member):
        member.out_of_memory = True
        state.occur(FailMember(member.id, f"{what}; {oom.raised(state, member)}.", oom.KILLED))
    else:
        oom.explain(state, member)
