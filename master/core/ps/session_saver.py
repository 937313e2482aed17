"""Which session saves on request (the chief's), and how it is asked.

A task's own state does not request saves (`checkpoints.planned_save`): the variables are on the parameter servers, and
only the job as a whole knows whether these are up.
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
    """At the end of a step: moves the registered save handler from the task's generation to the task."""
    for seat in tally.changed(job, CHIEF, WORKER):
        world = seat.state.world
        if world is not None and world.saver is not None:
            seat.saver, world.saver = (world.saver, world.generation), None
            stalled_workers.note_step(job, seat)


def saver(seat: Seat) -> Member | None:
    """The task's member, if it is connected and can save on request."""
    member = seat.runs
    is_here = member is not None and member.session is not None and seat.saver == (member.id, seat.state.generation)
    return member if is_here else None


def has_replacement(seat: Seat) -> bool:
    """Whether a spare could take over this task at once."""
    return any(m.rank_index is None and readiness.can_start(m) for m in seat.state.members.values())


def ask(job: PsState, seat: Seat, why: str, within: float) -> None:
    """Asks the task's member to save within so many seconds, if it can."""
    member = saver(seat)
    if member is not None:
        reason = f"{member.id} is asked to save, because {why}."
        let(job, seat, partial(_order, seat.state, member, within, reason))


def _order(state: State, member: Member, within: float, reason: str) -> None:
    generation = state.generation
    orders.give(state, member, lambda number: SaveState(number, generation, within, reason, False), reason, generation)
    state.announce("SaveRequested", reason, member.id)
