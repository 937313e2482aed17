"""What each status reserves: the world in it may be started again, unchanged, under one of the next numbers.

That needs no status of its own then. Who reads the status next knows that world from it, under whichever of these its
members run it (`membership.failover`).
"""

from __future__ import annotations

from outrider.master.core.generation import readiness
from outrider.master.core.state.generation import Place, Reservation, World
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import NO_GENERATION, PodUid

RESERVED = 10


def reserve(state: State) -> None:
    """The status is about to be written."""
    world = _world(state)
    seats = () if world is None else tuple(_seat(state, place) for place in world.places.values())
    state.reserving.append(Reservation(state.status.version, seats, up_to(state)))
    if len(state.reserving) > 1 and _is_alike(state.reserving[-2], state.reserving[-1]):
        del state.reserving[-1]  # the earlier one is saved at the latest with it


def saved(state: State, version: int) -> None:
    """A write that failed may have arrived all the same: it counts as on its way until a later one has arrived."""
    while state.reserving and state.reserving[0].version <= version:
        state.reserved = state.reserving.pop(0)
        readiness.note_staffing(state)  # who waited for it may be dismissed


def may_have(state: State, member: Member) -> bool:
    """The newest status that is saved has it in its world, as far as is known. Told to finish, it would end with code
    0, and who reads that status next would take this for the end of the job (`membership.prior_success`)."""
    if state.reserved is None:
        return member.told > NO_GENERATION
    return any(place.member == member.id for place, _ in state.reserved.seats)


def up_to(state: State) -> int:
    world = _world(state)
    return 0 if world is None else world.generation.number + RESERVED


def _is_alike(one: Reservation, other: Reservation) -> bool:
    return (one.seats, one.up_to) == (other.seats, other.up_to)


def _world(state: State) -> World | None:
    """The one that would be started again."""
    return state.world if state.world is not None else state.left


def _seat(state: State, place: Place) -> tuple[Place, PodUid | None]:
    member = state.members.get(place.member)
    return place, None if member is None else member.uid
