"""Planned saves: before a planned change the script saves its state, if it has registered a save handler.

The master requests a save when the job is stopped or suspended, when a restart or another size waits for a checkpoint,
when the replacement of a leaving member is ready, and after a third of the leaving member's grace if the replacement is
not. The result is a finished checkpoint like any other, so a change that waits for one proceeds. If the state cannot be
saved in time, the change proceeds without it.

A script may have a handler of its own for a signal that the job names. Then all its ranks get that signal, once the
generation has made a step. The next save that the script begins and finishes counts: one that was being written when
the signal came is of an earlier step.
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
"""The fraction of a leaving member's grace after which a save is requested at the latest."""
LEAVE_EARLY = 5.0
"""Seconds before the end of a leaving member's grace at which the job continues without it."""
SLACK = 2.0
"""Seconds for the reply to arrive, beyond the time that the script has."""


def offered(state: State, member: Member, message: StateOffered) -> None:
    """Handles the report that rank 0 of the running generation can save its state on request."""
    world = state.world
    if world is None or message.generation != world.generation or member.id not in world.places:
        return
    is_new, world.saver = world.saver is None, member.id
    if is_new:
        what = ", ".join(message.names)
        text = f"The script can save its state on request, before planned changes: {what}."
        state.announce("SaveHandlerRegistered", text, member.id)
        readiness.note_resize(state)


def holds(state: State, why: str, patience: float | None = None, *, is_last: bool = True) -> bool:
    """Whether this change has to wait for a save, which is requested if necessary.

    False if the script cannot save, or the save has just ended. `why`: the change, for the Events. `patience`: seconds
    for the save; None: the job's `save_grace`. `is_last`: the generation is stopped as soon as its state is saved.
    """
    world = state.world
    if world is None or state.stage != RUNNING:
        return False
    if is_requested(state) or is_just_over(state, world):
        return is_requested(state)
    return _request(state, world, why, patience, is_last)


def is_requested(state: State) -> bool:
    """Whether a save has been requested and has not ended yet."""
    world = state.world
    return world is not None and world.save is not None and world.save.over_at is None


def is_just_over(state: State, world: World) -> bool:
    """Whether the requested save has succeeded or failed in this step."""
    return world.save is not None and world.save.over_at == state.now


def _request(state: State, world: World, why: str, patience: float | None, is_last: bool) -> bool:
    if state.spec.observed:
        return False  # the change will not be made
    signal = state.spec.save_signal if world.saver is None and world.made_step else ""
    savers = [world.saver] if world.saver is not None else list(world.places) if signal else []
    members = [state.members[member_id] for member_id in savers if _can_save(state, world, member_id)]
    if not members or len(members) < len(savers):
        return False
    within = state.spec.save_grace if patience is None else patience
    request = f"Every rank receives {signal}" if signal else f"{members[0].id} is requested"
    reason = f"{request} to save the script's state, because {why}."
    generation = world.generation

    def order(number: OrderId) -> SaveState:
        return SaveState(number, generation, within, reason, is_last, signal)

    given = frozenset(orders.give(state, member, order, reason, generation) for member in members)
    world.save = PlannedSave(given, why, signal)
    state.deadlines.set(("saved state", str(generation.number)), state.now + within + SLACK)
    state.announce("SaveRequested", reason, world.saver)
    return True


def _can_save(state: State, world: World, member_id: MemberId) -> bool:
    member = state.members.get(member_id)
    is_heard = member is not None and member.session is not None and member.life == ALIVE
    return is_heard and member_id not in world.done


def saved(state: State, member: Member, message: StateSaved) -> None:
    """Handles a member's reply to a save request."""
    orders.acknowledge(state, member, message.order)
    world = state.world
    if world is None or world.save is None or not is_requested(state) or message.order not in world.save.orders:
        return
    if message.error:
        _not_saved(state, world, f"the state could not be saved: {message.error}", member.id)
        return
    if world.save.signal:
        return  # the hooks report its save like any other
    text = f"The script's state of step {message.step} was saved in {seconds(message.seconds)}: {message.path}."
    state.announce("StateSaved", text, member.id)
    state.checkpoint_step = message.step
    _over(state, world)


def checkpoint(state: State, finished: CheckpointFinished) -> None:
    """Handles a finished save of the script: the requested one, if it began after the signal was sent."""
    world, message = state.world, finished.message
    if world is None or world.save is None or not is_requested(state) or message.asked not in world.save.orders:
        return
    text = f"The script has saved {message.path} at step {message.step}, as requested by {world.save.signal}."
    state.announce("StateSaved", text, finished.member)
    for each in [m for member_id in world.places if (m := state.members.get(member_id)) is not None]:
        for order in [number for number in each.orders if number in world.save.orders]:
            orders.acknowledge(state, each, order)
    state.checkpoint_step = message.step
    _over(state, world)


def overdue(state: State, number: str) -> None:
    """Gives up a requested save whose deadline has passed."""
    world = state.world
    if world is not None and world.save is not None and str(world.generation.number) == number:
        _not_saved(state, world, "the state was not saved in time", world.saver)


def _not_saved(state: State, world: World, why: str, member: MemberId | None) -> None:
    state.announce("StateNotSaved", f"{why[0].upper()}{why[1:]}; the last checkpoint is used.", member, warning=True)
    _over(state, world)


def _over(state: State, world: World) -> None:
    assert world.save is not None
    world.save.over_at = state.now
    state.deadlines.cancel(("saved state", str(world.generation.number)))
    readiness.note_resize(state)
    state.mark_status()


def leaves(state: State, member: Member, grace: float) -> None:
    """Plans the save before a member leaves, `grace` seconds from now: at once if all members leave."""
    world = state.world
    if world is None or state.stage != RUNNING or member.id not in world.places:
        return
    if all_leave(state, world):
        holds(state, "all members have to leave", _within(state, member))
    else:
        state.deadlines.set(("move", member.id), state.now + SHARE * grace)


def due(state: State, member_id: str) -> None:
    """Requests a save if a third of a leaving member's grace is over and its replacement is not ready."""
    member = state.members.get(MemberId(member_id))
    world = state.world
    if member is not None and member.leaving and world is not None and member.id in world.places:
        why = f"{member.id} has to leave ({member.leaving})"
        holds(state, why, _within(state, member), is_last=bool(state.resize))


def _within(state: State, member: Member) -> float:
    """Seconds until the job continues without the leaving member."""
    ends = state.deadlines.at(("leave", member.id))
    return before_end(state, ends) if ends is not None else state.spec.save_grace


def before_end(state: State, ends: float) -> float:
    """Seconds for a save if the generation ends at `ends`."""
    return min(state.spec.save_grace, max(ends - state.now - SLACK, 1.0))


def all_leave(state: State, world: World) -> bool:
    members = (state.members.get(member_id) for member_id in world.places)
    return all(member is None or member.leaving for member in members)
