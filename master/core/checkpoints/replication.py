"""Rank 0 alone saves the marked path. While the world trains, each of its members is given that save.

Who has it gives it to one at a time, so that those who have it double in number with each round. It is kept when every
member has it: any of them may be lost then, and the next world begins from it all the same.
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
"""Seconds for a copy; more where it is large."""


def begin(state: State, world: World, source: MemberId, said: Remembered) -> None:
    """What is on its way comes to its end first; the newest that is said meanwhile is next."""
    keeping = world.keeping
    keeping.lengths[said.rank], keeping.counted[said.step] = said.length, said.counted
    if keeping.orders or said.step <= keeping.copied:
        keeping.waiting = max(keeping.waiting, said.step)
        return
    keeping.counted = {number: steps for number, steps in keeping.counted.items() if number >= said.step}
    keeping.copied, keeping.failed = said.step, False
    keeping.lacking = [member for member in reversed(world.order) if member != source]
    rounds = len(world.order).bit_length()
    state.deadlines.set(
        ("copied", str(world.generation.number)),
        state.now + LEAST + rounds * said.length / restore.SLOWEST + restore.SLACK,
    )
    _give(state, world, source)


def fetched(state: State, world: World, taker: Member, message: Fetched) -> None:
    """Giver and taker both can give it on."""
    giver = world.keeping.givers.pop(message.order, None)
    if giver is not None:
        for source in (giver, *(() if message.error else (taker.id,))):
            _give(state, world, source)


def give_up(keeping: Keeping) -> None:
    """Nothing more is given."""
    keeping.lacking.clear()
    keeping.givers.clear()


def _give(state: State, world: World, source: MemberId) -> None:
    keeping, owner = world.keeping, state.members.get(source)
    if not keeping.lacking or owner is None:
        return
    taker = state.members.get(keeping.lacking.pop())
    if taker is None:
        keeping.failed = True
        return
    number, rank = keeping.copied, next(iter(world.places.values())).first_rank
    length = keeping.lengths.get(rank, 0)
    wanted = (restore.wanted_from(owner, rank, 0, length),)
    reason = f"{taker.id} is given {described(keeping, number)} by {source}."
    what = (world.generation, number, world.generation, wanted, False, LEAST + length / restore.SLOWEST, reason)
    order = orders.give(state, taker, lambda number: Fetch(number, *what, True), reason)
    keeping.orders[order], keeping.givers[order] = taker.id, source


def described(keeping: Keeping, number: int) -> str:
    counted = keeping.counted.get(number, 0)
    return f"save {number} of the marked path" + (f" (step {counted})" if counted else "")
