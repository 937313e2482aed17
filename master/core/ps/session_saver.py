"""Whose session saves when it is asked to: the chief's, and how it is asked.

For the moves of one world it would not be asked: what it saves is on the servers, and only here it is known that they
still serve.
"""

from __future__ import annotations

from functools import partial

from outrider.master.core.generation import orders, readiness
from outrider.master.core.ps import stalled_workers, tally
from outrider.master.core.ps.state import CHIEF, PsState, Seat
from outrider.master.core.ps.task_adapter import let
from outrider.master.core.spec import WORKER
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.messages.checkpoints import SaveState


def note_savers(job: PsState) -> None:
    """At the end of a step."""
    for seat in tally.changed(job, CHIEF, WORKER):
        world = seat.state.world
        if world is not None and world.saver is not None:
            seat.saver, world.saver = (world.saver, world.generation), None
            stalled_workers.note_step(job, seat)


def saver(seat: Seat) -> Member | None:
    """Who is here and can be asked."""
    member = seat.runs
    is_here = member is not None and member.session is not None and seat.saver == (member.id, seat.state.generation)
    return member if is_here else None


def has_replacement(seat: Seat) -> bool:
    """Somebody could take this place at once."""
    return any(m.rank_index is None and readiness.can_start(m) for m in seat.state.members.values())


def ask(job: PsState, seat: Seat, why: str, within: float) -> None:
    """Of one who can be; `within`: seconds."""
    member = saver(seat)
    if member is not None:
        reason = f"{member.id} is asked to save, because {why}."
        let(job, seat, partial(_order, seat.state, member, within, reason))


def _order(state: State, member: Member, within: float, reason: str) -> None:
    generation = state.generation
    orders.give(state, member, lambda number: SaveState(number, generation, within, reason, False), reason, generation)
    state.announce("SaveRequested", reason, member.id)
