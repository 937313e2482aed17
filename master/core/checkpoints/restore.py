"""Before a world starts, who of it lacks the checkpoint that the others have in memory is given it.

The world is decided and saved, and nobody has been told of it: whatever becomes of its members meanwhile, it is dropped
and another one formed. A Start waits for copies until their deadline and no longer; who has not got its copy by then
starts without one, and the ranks agree on what all of them have. Where nobody lacks anything nothing is waited for, so
survivors of a crash go on at once.
"""

from __future__ import annotations

from collections import Counter

from outrider.master.core.checkpoints import restore_plan
from outrider.master.core.checkpoints.restore_plan import Need, Version
from outrider.master.core.generation import lifecycle, orders
from outrider.master.core.state.generation import Restoring, World
from outrider.master.core.state.job import COMMITTING, State
from outrider.master.core.state.member import Member
from outrider.master.core.text import seconds
from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.checkpoints import Fetch, Fetched, Wanted

LEAST, MOST = 10.0, 180.0
SLOWEST = 50e6
"""Bytes a second that a member gives at the least."""
SLACK = 3.0
"""Seconds in which the answer may come."""


def start(state: State, world: World) -> None:
    """The world is saved: it starts, at once or when the copies are there that members lack."""
    if not waits(state, world):
        _start(state, world)


def waits(state: State, world: World) -> bool:
    """Copies are on their way."""
    if world.restoring is None:
        world.restoring = Restoring()
        _ask(state, world, world.restoring)
    return bool(world.restoring.orders)


def _ask(state: State, world: World, restoring: Restoring) -> None:
    there = {i: m.ready.copies for i in world.places if (m := state.members[i]).ready is not None and m.ready.copies}
    version = restore_plan.newest(world.places.values(), world.world_size, there) if there else None
    if version is None:
        return
    wanted = restore_plan.needs(version, world.places.values(), there)
    given = Counter[MemberId]()
    for need in (need for needs in wanted.values() for need in needs):
        given[need.source] += need.length
    for member_id, needs in wanted.items():
        patience = min(MOST, LEAST + max(given[need.source] for need in needs) / SLOWEST)
        restoring.until = max(restoring.until, state.now + patience + SLACK)
        order = _give(state, world, state.members[member_id], version, needs, patience)
        restoring.orders[order] = member_id
    if version.sharded:
        restoring.step, restoring.made_in = version.step, version.generation
        restoring.unheld = restore_plan.unheld(version, world.places.values(), there)
    if restoring.orders:
        state.deadlines.set(("fetch", str(world.generation.number)), restoring.until)


def _give(state: State, world: World, member: Member, version: Version, needs: list[Need], patience: float) -> OrderId:
    sources = " and ".join(sorted({str(need.source) for need in needs}))
    reason = (
        f"{member.id} is given {version.name} from the memory of {sources}, before generation "
        f"{world.generation} starts."
    )
    wanted = tuple(wanted_from(state.members[need.source], need.rank, need.local_rank, need.length) for need in needs)
    what = (world.generation, version.step, version.generation, wanted, version.sharded, patience, reason)
    restoring = world.restoring
    assert restoring is not None
    restoring.name = version.name
    state.announce("CheckpointSent", reason, member.id)
    return orders.give(state, member, lambda order: Fetch(order, *what, version.marked), reason)


def wanted_from(source: Member, rank: int, local_rank: int, length: int, *, held: bool = False) -> Wanted:
    place = (source.id, source.address, source.memory_port, source.memory_key)
    return Wanted(rank, local_rank, *place, held, length)


def fetched(state: State, member: Member, message: Fetched) -> None:
    world = state.world
    if world is None or world.restoring is None or message.order not in world.restoring.orders:
        return
    del world.restoring.orders[message.order]
    if message.error:
        _goes_without(state, member.id, world.restoring, message.error)
    else:
        text = f"{member.id} has {world.restoring.name} in memory, after {seconds(message.seconds)}."
        state.announce("CheckpointReceived", text, member.id)
    if not world.restoring.orders:
        _start_restored(state, world)


def overdue(state: State, number: str) -> None:
    """The deadline of the copies."""
    world = state.world
    if world is None or world.restoring is None or state.stage != COMMITTING or str(world.generation.number) != number:
        return
    for order, member_id in sorted(world.restoring.orders.items()):
        member = state.members.get(member_id)
        pending = member.orders.get(order) if member is not None else None
        if pending is not None and isinstance(pending.message, Fetch):
            _goes_without(state, member_id, world.restoring, "it was not there in time")
    lifecycle.drop_fetches(state, world)
    _start_restored(state, world)


def _goes_without(state: State, member: MemberId, restoring: Restoring, why: str) -> None:
    text = f"{member} goes without {restoring.name}: {why}."
    state.announce("CheckpointTransferFailed", text, member, warning=True)


def _start(state: State, world: World) -> None:
    there = {i: m.ready.copies for i in world.places if (m := state.members[i]).ready is not None}
    begun = restore_plan.begun_from(world.places.values(), there)
    if begun is not None:
        world.begins_from = (begun.step, begun.generation)
    lifecycle.start(state)


def _start_restored(state: State, world: World) -> None:
    """Who could be started when the world was decided may have begun anew meanwhile."""
    state.deadlines.cancel(("fetch", str(world.generation.number)))
    first = state.members[world.order[0]].ready
    gone = [member for member in world.order if member not in state.ready]
    if not gone and first is not None and first.port == world.port:
        _start(state, world)
    else:
        who = " and ".join(gone) or str(world.order[0])
        lifecycle.stop(state, f"{who} began anew before generation {world.generation} started.")
