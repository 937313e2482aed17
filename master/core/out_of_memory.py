"""A worker process that the kernel killed for its container's memory: the same container would only run out again.

The container itself goes on, because the template or launcher is well, so nobody but its hooks can tell. Its member
fails by our word: its container ends with 137, its pod stays to be read, and its replacement gets more memory
(`memory`). Where the pod is another controller's, or has no limit of its own, the ranks begin again in place.
"""

from __future__ import annotations

from master.core import memory, pods
from master.core.state import Member, State
from wire.messages import Exited


def exited(state: State, member: Member, message: Exited) -> None:
    """After `recovery` has made a fault of it."""
    ends = [end for end in message.exits if end.out_of_memory]
    world = state.world
    if not ends or state.is_over or world is None or world.generation != message.generation:
        return
    if member.id not in world.places or member.id not in state.members:
        return
    rank = world.places[member.id].first_rank + ends[0].local_rank
    if memory.may_have_more(state, member):
        member.out_of_memory = True
        what = f"Rank {rank} on {member.id} was killed because the container ran out of memory"
        pods.fail(state, member, f"{what}; {memory.raised(state, member)}.", pods.KILLED)
    elif memory.has_own_limit(member):
        _advise(state, member)
    else:
        _begin_in_place(state, member)


def _begin_in_place(state: State, member: Member) -> None:
    if not member.node:
        return  # a local job's: the sentence that the process was killed for memory says all there is
    text = (
        f"{member.id} has no memory limit (resources.limits.memory), so that its node {member.node} was short: its "
        f"ranks begin again in place. With a limit it would be replaced by a pod with more."
    )
    state.announce("OutOfMemory", text, member.id, warning=True)


def _advise(state: State, member: Member) -> None:
    text = (
        f"{member.id} has run out of {memory.shown(member)}: its ranks begin again in place. To give it more, "
        f"{memory.raised(state, member)}."
    )
    state.announce("OutOfMemory", text, member.id, warning=True)
