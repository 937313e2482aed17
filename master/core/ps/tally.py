"""What is true of which seats. It is kept as each of them changes, so that no message costs a walk over all.

`note` is called after each step of a seat, and where else a mark of it may change. Rules look at the seats that have
changed since they looked last, and ask the marks about all others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from outrider.master.core import step as core_step
from outrider.master.core.ps.state import ROLES, Key, PsState, Seat, has_ended
from outrider.wire.ids import RankIndex, Role

WANTED, UNDONE, ABSENT, UNSTEADY, MOVES, UNFIT = "wanted", "undone", "absent", "unsteady", "moves", "unfit"
"""The job wants this seat, and: it has not ended well; nobody runs there; nobody, or who has to leave; who runs there
serves until it is moved; has other resources than are wanted. Its phase is a mark too."""
WAITS, LIVES, STAYS = "waits", "lives", "stays"
"""Of any seat: as `waits_since` says; its own job is not over; it has not ended."""


def _marks(seat: Seat) -> Iterator[str]:
    state, member = seat.state, seat.runs
    if seat.waits_since is not None:
        yield WAITS
    if not state.is_over:
        yield LIVES
    if not has_ended(seat):
        yield STAYS
    if seat.removed:
        return
    yield from (WANTED, state.phase)
    if state.phase != "succeeded":
        yield UNDONE
    if member is None:
        yield ABSENT
    if member is None or member.leaving:
        yield UNSTEADY
    if member is not None and member.stays_until_saved:
        yield MOVES
    if member is not None and not member.deleting and not seat.fits(member):
        yield UNFIT


# -- keeping ------------------------------------------------------------------------------------------------------
def note(job: PsState, seat: Seat) -> None:
    """It may have changed."""
    job.touched.add(seat.key)
    _mark(job, seat, frozenset(_marks(seat)))
    member = seat.runs
    _stand(job, seat, member is not None and not seat.removed and bool(member.address and member.probe_port))
    note_deadline(job, seat)
    said = f"{seat.name} {core_step.describe(seat.state)}"
    if job.descriptions.get(seat.key) != said:
        job.descriptions[seat.key], job.description = said, None


def note_deadline(job: PsState, seat: Seat) -> None:
    """Of it alone: nothing else can have changed."""
    due, key = core_step.next_deadline(seat.state), (seat.role, str(seat.index))
    if due is None:
        job.seat_deadlines.cancel(key)
    else:
        job.seat_deadlines.set(key, due)


def settle(job: PsState) -> None:
    """At the end of a step."""
    if job.description is None:
        job.description = ", ".join(job.descriptions.values())


def forget(job: PsState, seat: Seat) -> None:
    """The job has this seat no more."""
    _mark(job, seat, frozenset())
    _stand(job, seat, False)
    job.seat_deadlines.cancel((seat.role, str(seat.index)))
    job.late.discard(seat.key)
    del job.seats[seat.key], job.descriptions[seat.key]
    job.description = None


def sort(job: PsState) -> None:
    """By role and rank index, after seats were added."""
    job.seats = {key: job.seats[key] for key in sorted(job.seats, key=_place)}
    job.descriptions = {key: job.descriptions[key] for key in job.seats}
    job.description = None


def _mark(job: PsState, seat: Seat, marks: frozenset[str]) -> None:
    for mark in seat.marks ^ marks:
        marked = job.marked.setdefault((seat.role, mark), set())
        (marked.add if mark in marks else marked.discard)(seat.key)
    seat.marks = marks


def _stand(job: PsState, seat: Seat, in_ring: bool) -> None:
    """Members whose sidecars answer others form a ring."""
    place = _place(seat.key)
    at = bisect_left(job.ring, place)
    is_there = job.ring[at : at + 1] == [place]
    if in_ring and not is_there:
        job.ring.insert(at, place)
    elif is_there and not in_ring:
        del job.ring[at]


# -- asking -------------------------------------------------------------------------------------------------------
def has(job: PsState, mark: str, *roles: Role) -> bool:
    return any(job.marked.get((role, mark)) for role in roles or ROLES)


def count(job: PsState, mark: str, *roles: Role) -> int:
    return sum(len(job.marked.get((role, mark), ())) for role in roles or ROLES)


def those(job: PsState, mark: str, *roles: Role) -> list[Seat]:
    """In the order of seats."""
    return _seats(job, (key for role in roles or ROLES for key in job.marked.get((role, mark), ())))


def changed(job: PsState, *roles: Role) -> list[Seat]:
    """Since the rules looked last, and in this step; of these roles only those that are wanted."""
    found = _seats(job, job.looked_at | job.touched)
    return [seat for seat in found if not seat.removed and seat.role in roles] if roles else found


def look_again(job: PsState, name: str) -> list[Seat]:
    """A moment of this seat has come; none: it is not wanted any more."""
    role, _, index = name.rpartition("-")
    seat = job.seats.get((Role(role), RankIndex(int(index))))
    if seat is None or seat.removed:
        return []
    job.touched.add(seat.key)
    return [seat]


def due(job: PsState) -> list[Seat]:
    """Each is to be told that its moment has come."""
    keys = job.seat_deadlines.take_due(job.now)
    return _seats(job, ((Role(role), RankIndex(int(index))) for role, index in keys))


def after(job: PsState, seat: Seat, most: int) -> list[Seat]:
    """The next in the ring of members that answer others."""
    ring, place = job.ring, _place(seat.key)
    first = bisect_right(ring, place)
    found = (ring[(first + n) % len(ring)] for n in range(min(most, len(ring))))
    return [job.seats[ROLES[role], index] for role, index in found if (role, index) != place]


def _seats(job: PsState, keys: Iterable[Key]) -> list[Seat]:
    return [job.seats[key] for key in sorted(keys, key=_place) if key in job.seats]


def _place(key: Key) -> tuple[int, RankIndex]:
    return ROLES.index(key[0]), key[1]
