"""Whom a member looks at to learn whether it is cut off: at most three others of its world.

In a world of up to four everybody looks at everybody. In a larger one the three are spread over it, and on other nodes
where they can be: what cuts a member off is mostly its node or its rack, and neighbours that are cut off together with
it would tell each other that all is well. O(1) a member, or ten thousand Starts would cost a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from master.core.state import Member, State, World
from wire.ids import MemberId
from wire.messages import Neighbour

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
    nodes = {own.node if own is not None else ""} - {""}
    chosen: list[Member] = []
    for part in range(1, MOST + 1):
        offset = part * len(order) // (MOST + 1)
        found = [each for each in _from(state, order, index, offset) if each not in chosen]
        if found:
            chosen.append(next((each for each in found if each.node not in nodes), found[0]))
            nodes |= {chosen[-1].node} - {""}
    return chosen


def _from(state: State, order: Sequence[MemberId], index: int, offset: int) -> Iterator[Member]:
    for step in range(STEPS):
        place = (index + offset + step) % len(order)
        member = _asked(state, order[place])
        if place != index and member is not None:
            yield member


def _asked(state: State, member: MemberId) -> Member | None:
    """None where it cannot be asked: nothing is known of its sidecar."""
    found = state.members.get(member)
    return found if found is not None and found.address and found.probe_port else None
