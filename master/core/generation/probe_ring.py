"""The neighbours that a member probes to learn whether it is cut off: at most three of its generation.

In a generation of up to four members each probes all others. In a larger one the three are spread over the ranks, and
over other nodes if possible: a member is mostly cut off with its node or rack, and neighbours that are cut off with it
would still answer its probes. O(1) a member, or ten thousand Starts would cost a second.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.master.core.state.generation import World
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import MemberId
from outrider.wire.messages.links import Neighbour

MOST = 3
STEPS = 8
"""Members that are considered, from each of the three positions on, to find one on another node."""


def of(state: State, world: World, member: MemberId) -> tuple[Neighbour, ...]:
    """The neighbours of a member of this generation; none if it is alone."""
    index = world.places[member].group_rank
    chosen = _spread(state, world.order, index) if len(world.order) > MOST + 1 else _others(state, world.order, index)
    return tuple(Neighbour(each.id, each.address, each.probe_port) for each in chosen)


def _others(state: State, order: Sequence[MemberId], index: int) -> list[Member]:
    found = (_reachable(state, each) for position, each in enumerate(order) if position != index)
    return [member for member in found if member is not None]


def _spread(state: State, order: Sequence[MemberId], index: int) -> list[Member]:
    own = state.members.get(order[index])
    taken, nodes = {order[index]}, {own.node if own is not None else ""} - {""}
    chosen: list[Member] = []
    for part in range(1, MOST + 1):
        found = _nearest(state, order, index + part * len(order) // (MOST + 1), taken, nodes)
        if found is not None:
            chosen.append(found)
            taken.add(found.id)
            nodes |= {found.node} - {""}
    return chosen


def _nearest(
    state: State, order: Sequence[MemberId], start: int, taken: set[MemberId], nodes: set[str]
) -> Member | None:
    """The first member from this position on that is on another node, else the first of all."""
    first: Member | None = None
    for step in range(STEPS):
        member = _reachable(state, order[(start + step) % len(order)])
        if member is None or member.id in taken:
            continue
        if member.node not in nodes:
            return member
        first = first or member
    return first


def _reachable(state: State, member: MemberId) -> Member | None:
    """The member, or None if the address of its sidecar is unknown."""
    found = state.members.get(member)
    return found if found is not None and found.address and found.probe_port else None
