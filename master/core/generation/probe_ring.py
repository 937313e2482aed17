"""Whom a member looks at to learn whether it is cut off: at most three others of its world.

In a world of up to four everybody looks at everybody. In a larger one the three are spread over it, and on other nodes
where they can be: what cuts a member off is mostly its node or its rack, and neighbours that are cut off together with
it would tell each other that all is well. O(1) a member, or ten thousand Starts would cost a second.
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
"""Members that are looked at, from each of the three places on, for one on a node that is not taken yet."""


def of(state: State, world: World, member: MemberId) -> tuple[Neighbour, ...]:
    """The neighbours of a member of this world; none where it is alone."""
    index = world.places[member].group_rank
    chosen = _spread(state, world.order, index) if len(world.order) > MOST + 1 else _others(state, world.order, index)
    return tuple(Neighbour(each.id, each.address, each.probe_port) for each in chosen)


def _others(state: State, order: Sequence[MemberId], index: int) -> list[Member]:
    found = (_asked(state, each) for place, each in enumerate(order) if place != index)
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
    """From this place on: the first on another node, else the first."""
    first: Member | None = None
    for step in range(STEPS):
        member = _asked(state, order[(start + step) % len(order)])
        if member is None or member.id in taken:
            continue
        if member.node not in nodes:
            return member
        first = first or member
    return first


def _asked(state: State, member: MemberId) -> Member | None:
    """None where it cannot be asked: nothing is known of its sidecar."""
    found = state.members.get(member)
    return found if found is not None and found.address and found.probe_port else None
