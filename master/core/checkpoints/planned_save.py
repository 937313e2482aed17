"""Planned moves: before a change that everybody knows is coming, the script saves its state, where it has offered to.

It is asked when the job is stopped or suspended, when a restart or another size waits for a checkpoint, when the
replacement of a leaving member is ready, and at a third of the grace of one whose replacement is not. What was saved is
a finished checkpoint like any other, so what waited for one goes on with it; where it cannot be saved in time, things
go on as they would without.

A script that has a handler of its own for a signal, which the job names, is asked by that: all of its ranks, once the
world has made a step. The next save that it begins, and finishes, is what was asked for: one that was being written
when the signal came is of an earlier step.
"""

from __future__ import annotations

from outrider.master.core.generation import orders, readiness
from outrider.master.core.state.generation import PlannedSave, World
from outrider.master.core.state.job import RUNNING, State
from outrider.master.core.state.member import ALIVE, Member
from outrider.master.core.state.occurrences import CheckpointFinished
from outrider.master.core.text import seconds
from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.checkpoints import SaveState, StateOffered, StateSaved

SHARE = 1 / 3
"""Of a leaving member's grace: at the latest then it is asked."""
LEAVE_EARLY = 5.0
"""Seconds before the end of a leaving member's grace at which the world goes on without it."""
SLACK = 2.0
"""Seconds beyond those that the script has, in which the answer may come."""


def offered(state: State, member: Member, message: StateOffered) -> None:
    """Rank 0 of the running world saves its state when it is asked to."""
    world = state.world
    if world is None or message.generation != world.generation or member.id not in world.places:
        return
    is_new, world.saver = world.saver is None, member.id
    if is_new:
        what = ", ".join(message.names)
        state.announce("SaveHandlerRegistered", f"The script saves its state before planned moves: {what}.", member.id)
        readiness.note_resize(state)


def holds(state: State, why: str, patience: float | None = None, *, is_last: bool = True) -> bool:
    """Is the state being saved, so that this change has to wait? False where nobody can, or it has just been tried.
    `is_last`: the world is stopped as soon as it is saved."""
    world = state.world
    if world is None or state.stage != RUNNING:
        return False
    if is_asked(state) or is_just_over(state, world):
        return is_asked(state)
    return _ask(state, world, why, patience, is_last)


def is_asked(state: State) -> bool:
    """The script has been asked to save, and what came of it is not known yet."""
    world = state.world
    return world is not None and world.save is not None and world.save.over_at is None


def is_just_over(state: State, world: World) -> bool:
    """In this step it was saved, or it became known that it will not be."""
    return world.save is not None and world.save.over_at == state.now


def _ask(state: State, world: World, why: str, patience: float | None, is_last: bool) -> bool:
    if state.spec.observed:
        return False  # what it would be saved for is not done
    signal = state.spec.save_signal if world.saver is None and world.made_step else ""
    asked = [world.saver] if world.saver is not None else list(world.places) if signal else []
    members = [state.members[member_id] for member_id in asked if _can_be_asked(state, world, member_id)]
    if not members or len(members) < len(asked):
        return False
    within = state.spec.save_grace if patience is None else patience
    who = f"Every rank is asked by {signal}" if signal else f"{members[0].id} is asked"
    reason = f"{who} to save the script's state, because {why}."
    generation = world.generation

    def order(number: OrderId) -> SaveState:
        return SaveState(number, generation, within, reason, is_last, signal)

    given = frozenset(orders.give(state, member, order, reason, generation) for member in members)
    world.save = PlannedSave(given, why, signal)
    state.deadlines.set(("saved state", str(generation.number)), state.now + within + SLACK)
    state.announce("SaveRequested", reason, world.saver)
    return True


def _can_be_asked(state: State, world: World, member_id: MemberId) -> bool:
    member = state.members.get(member_id)
    is_heard = member is not None and member.session is not None and member.life == ALIVE
    return is_heard and member_id not in world.done


def saved(state: State, member: Member, message: StateSaved) -> None:
    orders.acknowledge(state, member, message.order)
    world = state.world
    if world is None or world.save is None or not is_asked(state) or message.order not in world.save.orders:
        return
    if message.error:
        _not_saved(state, world, f"the state could not be saved: {message.error}", member.id)
        return
    if world.save.signal:
        return  # what it saves is seen as any save is
    text = f"The script's state of step {message.step} was saved in {seconds(message.seconds)}: {message.path}."
    state.announce("StateSaved", text, member.id)
    state.checkpoint_step = message.step
    _over(state, world)


def checkpoint(state: State, finished: CheckpointFinished) -> None:
    """The script has finished a save: the one that a signal asked for, where it began when that had been sent."""
    world, message = state.world, finished.message
    if world is None or world.save is None or not is_asked(state) or message.asked not in world.save.orders:
        return
    text = f"The script has saved {message.path} at step {message.step}, asked by {world.save.signal}."
    state.announce("StateSaved", text, finished.member)
    for each in [m for member_id in world.places if (m := state.members.get(member_id)) is not None]:
        for order in [number for number in each.orders if number in world.save.orders]:
            orders.acknowledge(state, each, order)
    state.checkpoint_step = message.step
    _over(state, world)


def overdue(state: State, number: str) -> None:
    """No answer came."""
    world = state.world
    if world is not None and world.save is not None and str(world.generation.number) == number:
        _not_saved(state, world, "the state was not saved in time", world.saver)


def _not_saved(state: State, world: World, why: str, member: MemberId | None) -> None:
    state.announce("StateNotSaved", f"{why[0].upper()}{why[1:]}; the last checkpoint counts.", member, warning=True)
    _over(state, world)


def _over(state: State, world: World) -> None:
    assert world.save is not None
    world.save.over_at = state.now
    state.deadlines.cancel(("saved state", str(world.generation.number)))
    readiness.note_resize(state)
    state.mark_status()


def leaves(state: State, member: Member, grace: float) -> None:
    """It has to leave within that time: when it is asked at the latest, and at once where nobody stays."""
    world = state.world
    if world is None or state.stage != RUNNING or member.id not in world.places:
        return
    if all_leave(state, world):
        holds(state, "all members have to leave", _within(state, member))
    else:
        state.deadlines.set(("move", member.id), state.now + SHARE * grace)


def due(state: State, member_id: str) -> None:
    """A third of its grace is over, and its replacement is not there."""
    member = state.members.get(MemberId(member_id))
    world = state.world
    if member is not None and member.leaving and world is not None and member.id in world.places:
        why = f"{member.id} has to leave ({member.leaving})"
        holds(state, why, _within(state, member), is_last=bool(state.resize))


def _within(state: State, member: Member) -> float:
    """Seconds until the world goes on without it."""
    ends = state.deadlines.at(("leave", member.id))
    return before_end(state, ends) if ends is not None else state.spec.save_grace


def before_end(state: State, ends: float) -> float:
    """Seconds for a save where the world ends then."""
    return min(state.spec.save_grace, max(ends - state.now - SLACK, 1.0))


def all_leave(state: State, world: World) -> bool:
    members = (state.members.get(member_id) for member_id in world.places)
    return all(member is None or member.leaving for member in members)
