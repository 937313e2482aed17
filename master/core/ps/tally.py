"""Marks what is true of which tasks, updated as each task changes, so that no message costs a walk over all.

`note` is called after each step of a task, and wherever else its marks may change. Rules look at the tasks that have
changed since they last looked, and use the marks for all others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from outrider.master.core import step as core_step
from outrider.master.core.ps.state import ROLES, Key, PsState, Seat, has_ended
from outrider.wire.ids import RankIndex, Role

WANTED, UNDONE, ABSENT, UNSTEADY, MOVES, UNFIT = "wanted", "undone", "absent", "unsteady", "moves", "unfit"
"""Marks of tasks that the job has not removed, besides the task's phase.

WANTED: all of them. UNDONE: has not succeeded. ABSENT: no member runs. UNSTEADY: no member runs, or it has to leave.
MOVES: its member serves until it is moved. UNFIT: its member does not have the requested resources.
"""
WAITS, LIVES, STAYS = "waits", "lives", "stays"
"""Marks of any task. WAITS: `waits_since` is set. LIVES: its own job is not over. STAYS: it has not ended."""


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


# -- updates ------------------------------------------------------------------------------------------------------
def note(job: PsState, seat: Seat) -> None:
    """Updates what is known of a task that may have changed."""
    job.touched.add(seat.key)
    _mark(job, seat, frozenset(_marks(seat)))
    member = seat.runs
    _update_ring(job, seat, member is not None and not seat.removed and bool(member.address and member.probe_port))
    note_deadline(job, seat)
    text = f"{seat.name} {core_step.describe(seat.state)}"
    if job.descriptions.get(seat.key) != text:
        job.descriptions[seat.key], job.description = text, None


def note_deadline(job: PsState, seat: Seat) -> None:
    """Updates the deadline of a task in which nothing else can have changed."""
    due, key = core_step.next_deadline(seat.state), (seat.role, str(seat.index))
    if due is None:
        job.seat_deadlines.cancel(key)
    else:
        job.seat_deadlines.set(key, due)


def settle(job: PsState) -> None:
    """At the end of a step: rebuilds the job's description if a part of it has changed."""
    if job.description is None:
        job.description = ", ".join(job.descriptions.values())


def forget(job: PsState, seat: Seat) -> None:
    """Drops a task from the job."""
    _mark(job, seat, frozenset())
    _update_ring(job, seat, False)
    job.seat_deadlines.cancel((seat.role, str(seat.index)))
    job.late.discard(seat.key)
    del job.seats[seat.key], job.descriptions[seat.key]
    job.description = None


def sort(job: PsState) -> None:
    """Sorts tasks by role and rank index, after some were added."""
    job.seats = {key: job.seats[key] for key in sorted(job.seats, key=_place)}
    job.descriptions = {key: job.descriptions[key] for key in job.seats}
    job.description = None


def _mark(job: PsState, seat: Seat, marks: frozenset[str]) -> None:
    for mark in seat.marks ^ marks:
        marked = job.marked.setdefault((seat.role, mark), set())
        (marked.add if mark in marks else marked.discard)(seat.key)
    seat.marks = marks


def _update_ring(job: PsState, seat: Seat, in_ring: bool) -> None:
    """Puts a task into the ring of those whose sidecars answer probes of others, or takes it out."""
    place = _place(seat.key)
    at = bisect_left(job.ring, place)
    is_there = job.ring[at : at + 1] == [place]
    if in_ring and not is_there:
        job.ring.insert(at, place)
    elif is_there and not in_ring:
        del job.ring[at]


# -- queries ------------------------------------------------------------------------------------------------------
def has(job: PsState, mark: str, *roles: Role) -> bool:
    return any(job.marked.get((role, mark)) for role in roles or ROLES)


def count(job: PsState, mark: str, *roles: Role) -> int:
    return sum(len(job.marked.get((role, mark), ())) for role in roles or ROLES)


def those(job: PsState, mark: str, *roles: Role) -> list[Seat]:
    """The tasks with this mark, in their order."""
    return _seats(job, (key for role in roles or ROLES for key in job.marked.get((role, mark), ())))


def changed(job: PsState, *roles: Role) -> list[Seat]:
    """The tasks that have changed since the rules last looked, or in this step; with roles, without removed ones."""
    found = _seats(job, job.looked_at | job.touched)
    return [seat for seat in found if not seat.removed and seat.role in roles] if roles else found


def look_again(job: PsState, name: str) -> list[Seat]:
    """Has the rules look at a task whose deadline has passed; returns it, or no task if it was removed."""
    role, _, index = name.rpartition("-")
    seat = job.seats.get((Role(role), RankIndex(int(index))))
    if seat is None or seat.removed:
        return []
    job.touched.add(seat.key)
    return [seat]


def due(job: PsState) -> list[Seat]:
    """The tasks whose deadline has passed, and which need the event `Woke`."""
    keys = job.seat_deadlines.take_due(job.now)
    return _seats(job, ((Role(role), RankIndex(int(index))) for role, index in keys))


def after(job: PsState, seat: Seat, most: int) -> list[Seat]:
    """The next `most` tasks in the ring of those whose members answer probes of others."""
    ring, place = job.ring, _place(seat.key)
    first = bisect_right(ring, place)
    found = (ring[(first + n) % len(ring)] for n in range(min(most, len(ring))))
    return [job.seats[ROLES[role], index] for role, index in found if (role, index) != place]


def _seats(job: PsState, keys: Iterable[Key]) -> list[Seat]:
    return [job.seats[key] for key in sorted(keys, key=_place) if key in job.seats]


def _place(key: Key) -> tuple[int, RankIndex]:
    return ROLES.index(key[0]), key[1]
