"""Replicates saves of the checkpoint path, which rank 0 writes alone, to all members while they train.

Each member that has the save sends it to one other at a time, so the number of replicas doubles with each round. The
save is replicated when every member has it: then any member may be lost, and the next generation still begins from it.
"""

from __future__ import annotations

from outrider.master.core.checkpoints import restore
from outrider.master.core.generation import orders
from outrider.master.core.state.generation import Keeping, World
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import MemberId
from outrider.wire.messages.checkpoints import Fetch, Fetched, Remembered

LEAST = 30.0
"""Seconds allowed for a copy; a large one gets more."""


def begin(state: State, world: World, source: MemberId, save: Remembered) -> None:
    """Replicates a new save once the one under way has ended; the newest that is reported meanwhile is next."""
    keeping = world.keeping
    keeping.lengths[save.rank], keeping.counted[save.step] = save.length, save.counted
    if keeping.orders or save.step <= keeping.copied:
        keeping.waiting = max(keeping.waiting, save.step)
        return
    keeping.counted = {number: steps for number, steps in keeping.counted.items() if number >= save.step}
    keeping.copied, keeping.failed = save.step, False
    keeping.lacking = [member for member in reversed(world.order) if member != source]
    rounds = len(world.order).bit_length()
    state.deadlines.set(
        ("copied", str(world.generation.number)),
        state.now + LEAST + rounds * save.length / restore.SLOWEST + restore.SLACK,
    )
    _send(state, world, source)


def fetched(state: State, world: World, receiver: Member, message: Fetched) -> None:
    """After a transfer, sender and receiver each send the save to a next member."""
    sender = world.keeping.givers.pop(message.order, None)
    if sender is not None:
        for source in (sender, *(() if message.error else (receiver.id,))):
            _send(state, world, source)


def give_up(keeping: Keeping) -> None:
    """Sends the save to no further members."""
    keeping.lacking.clear()
    keeping.givers.clear()


def _send(state: State, world: World, source: MemberId) -> None:
    keeping, owner = world.keeping, state.members.get(source)
    if not keeping.lacking or owner is None:
        return
    receiver = state.members.get(keeping.lacking.pop())
    if receiver is None:
        keeping.failed = True
        return
    number, rank = keeping.copied, next(iter(world.places.values())).first_rank
    length = keeping.lengths.get(rank, 0)
    copies = (restore.source_of(owner, rank, 0, length),)
    reason = f"{receiver.id} receives {described(keeping, number)} from {source}."
    what = (world.generation, number, world.generation, copies, False, LEAST + length / restore.SLOWEST, reason)
    order = orders.give(state, receiver, lambda number: Fetch(number, *what, True), reason)
    keeping.orders[order], keeping.givers[order] = receiver.id, source


def described(keeping: Keeping, number: int) -> str:
    counted = keeping.counted.get(number, 0)
    return f"save {number} of the checkpoint path" + (f" (step {counted})" if counted else "")
