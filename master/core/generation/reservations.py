"""Each status reserves numbers under which its generation may be restarted unchanged.

Such a restart needs no status of its own. The next master that reads the status recognizes the generation under
whichever of these numbers its members run it (`membership.failover`).
"""

from __future__ import annotations

from outrider.master.core.generation import readiness
from outrider.master.core.state.generation import Place, Reservation, World
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import NO_GENERATION, PodUid

RESERVED = 10


def reserve(state: State) -> None:
    """Adds the reservation of the status that is about to be written."""
    world = _world(state)
    seats = () if world is None else tuple(_seat(state, place) for place in world.places.values())
    state.reserving.append(Reservation(state.status.version, seats, up_to(state)))
    if len(state.reserving) > 1 and _is_alike(state.reserving[-2], state.reserving[-1]):
        del state.reserving[-1]  # the same reservation is already being saved


def saved(state: State, version: int) -> None:
    """Notes that a status was saved.

    A failed write may still have arrived: it counts as under way until a later one is saved.
    """
    while state.reserving and state.reserving[0].version <= version:
        state.reserved = state.reserving.pop(0)
        readiness.note_staffing(state)  # members that were kept for it may now be dismissed


def may_have(state: State, member: Member) -> bool:
    """Whether the newest saved status may have the member in its generation.

    Ordered to finish, the member would end with code 0, and the next master would read that as the end of the job
    (`membership.prior_success`).
    """
    if state.reserved is None:
        return member.ordered > NO_GENERATION
    return any(place.member == member.id for place, _ in state.reserved.seats)


def up_to(state: State) -> int:
    world = _world(state)
    return 0 if world is None else world.generation.number + RESERVED


def _is_alike(one: Reservation, other: Reservation) -> bool:
    return (one.seats, one.up_to) == (other.seats, other.up_to)


def _world(state: State) -> World | None:
    """The generation that a restart would repeat."""
    return state.world if state.world is not None else state.left


def _seat(state: State, place: Place) -> tuple[Place, PodUid | None]:
    member = state.members.get(place.member)
    return place, None if member is None else member.uid
