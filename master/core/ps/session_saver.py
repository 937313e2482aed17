"""Which session saves on request (the chief's), and how it is asked.

A task's own state does not request saves (`checkpoints.planned_save`): the variables are on the parameter servers, and
only the job as a whole knows whether these are up.
"""

from __future__ import annotations

from functools import partial

from outrider.master.core.generation import orders, readiness
from outrider.master.core.ps import stalled_workers, tally
from outrider.master.core.ps.state import CHIEF, PsState, Task
from outrider.master.core.ps.task_adapter import let
from outrider.master.core.spec import WORKER
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.messages.checkpoints import SaveState


def note_savers(job: PsState) -> None:
    """At the end of a step: moves the registered save handler from the task's generation to the task."""
    for task in tally.changed(job, CHIEF, WORKER):
        world = task.state.world
        if world is not None and world.saver is not None:
            task.saver, world.saver = (world.saver, world.generation), None
            stalled_workers.note_step(job, task)


def saver(task: Task) -> Member | None:
    """The task's member, if it is connected and can save on request."""
    member = task.runs
    is_here = member is not None and member.session is not None and task.saver == (member.id, task.state.generation)
    return member if is_here else None


def has_replacement(task: Task) -> bool:
    """Whether a spare could take over this task at once."""
    return any(m.rank_index is None and readiness.can_start(m) for m in task.state.members.values())


def ask(job: PsState, task: Task, why: str, within: float) -> None:
    """Asks the task's member to save within so many seconds, if it can."""
    member = saver(task)
    if member is not None:
        reason = f"{member.id} is requested to save, because {why}."
        let(job, task, partial(_order, task.state, member, within, reason))


def _order(state: State, member: Member, within: float, reason: str) -> None:
    generation = state.generation
    orders.give(state, member, lambda number: SaveState(number, generation, within, reason, False), reason, generation)
    state.announce("SaveRequested", reason, member.id)
