"""Before a generation starts, members that lack the others' in-memory checkpoint receive it.

At that time the generation is decided and saved, but no member knows of it. If something happens to its members
meanwhile, it is dropped and another one is formed. A Start waits for the transfers, at most until their deadline. A
member whose copy has not arrived by then starts without it, and the ranks agree on a checkpoint that all of them have.
If no member lacks anything, the generation starts at once, as it does with the survivors of a crash.
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
"""The fewest and the most seconds that a transfer is allowed."""
SLOWEST = 50e6
"""The lowest rate, in bytes per second, at which a member is expected to send."""
SLACK = 3.0
"""Seconds for the reply to arrive, beyond the time of the transfer."""


def start(state: State, world: World) -> None:
    """Starts a saved generation, at once or when the missing copies have arrived."""
    if not waits(state, world):
        _start(state, world)


def waits(state: State, world: World) -> bool:
    """Whether transfers are under way; requests them at the first call."""
    if world.restoring is None:
        world.restoring = Restoring()
        _request(state, world, world.restoring)
    return bool(world.restoring.orders)


def _request(state: State, world: World, restoring: Restoring) -> None:
    there = {i: m.ready.copies for i in world.places if (m := state.members[i]).ready is not None and m.ready.copies}
    version = restore_plan.newest(world.places.values(), world.world_size, there) if there else None
    if version is None:
        return
    plan = restore_plan.needs(version, world.places.values(), there)
    sent = Counter[MemberId]()
    for need in (need for needs in plan.values() for need in needs):
        sent[need.source] += need.length
    for member_id, needs in plan.items():
        patience = min(MOST, LEAST + max(sent[need.source] for need in needs) / SLOWEST)
        restoring.until = max(restoring.until, state.now + patience + SLACK)
        order = _fetch(state, world, state.members[member_id], version, needs, patience)
        restoring.orders[order] = member_id
    if version.sharded:
        restoring.step, restoring.made_in = version.step, version.generation
        restoring.unheld = restore_plan.unheld(version, world.places.values(), there)
    if restoring.orders:
        state.deadlines.set(("fetch", str(world.generation.number)), restoring.until)


def _fetch(state: State, world: World, member: Member, version: Version, needs: list[Need], patience: float) -> OrderId:
    sources = " and ".join(sorted({str(need.source) for need in needs}))
    reason = (
        f"{member.id} receives {version.name} from the memory of {sources}, before generation "
        f"{world.generation} starts."
    )
    copies = tuple(source_of(state.members[need.source], need.rank, need.local_rank, need.length) for need in needs)
    what = (world.generation, version.step, version.generation, copies, version.sharded, patience, reason)
    restoring = world.restoring
    assert restoring is not None
    restoring.name = version.name
    state.announce("CheckpointSent", reason, member.id)
    return orders.give(state, member, lambda order: Fetch(order, *what, version.marked), reason)


def source_of(source: Member, rank: int, local_rank: int, length: int, *, held: bool = False) -> Wanted:
    """The source from which a member fetches the copy of one rank. `held`: it stores it as another member's replica."""
    place = (source.id, source.address, source.memory_port, source.memory_key)
    return Wanted(rank, local_rank, *place, held, length)


def fetched(state: State, member: Member, message: Fetched) -> None:
    """Handles the end of a transfer, with or without an error."""
    world = state.world
    if world is None or world.restoring is None or message.order not in world.restoring.orders:
        return
    del world.restoring.orders[message.order]
    if message.error:
        _not_received(state, member.id, world.restoring, message.error)
    else:
        text = f"{member.id} has {world.restoring.name} in memory, after {seconds(message.seconds)}."
        state.announce("CheckpointReceived", text, member.id)
        state.counters.note_checkpoint("receive", message.seconds)
    if not world.restoring.orders:
        _start_restored(state, world)


def overdue(state: State, number: str) -> None:
    """Starts the generation without the copies that have missed their deadline."""
    world = state.world
    if world is None or world.restoring is None or state.stage != COMMITTING or str(world.generation.number) != number:
        return
    for order, member_id in sorted(world.restoring.orders.items()):
        member = state.members.get(member_id)
        pending = member.orders.get(order) if member is not None else None
        if pending is not None and isinstance(pending.message, Fetch):
            _not_received(state, member_id, world.restoring, "it did not arrive in time")
    lifecycle.drop_fetches(state, world)
    _start_restored(state, world)


def _not_received(state: State, member: MemberId, restoring: Restoring, why: str) -> None:
    text = f"{member} starts without {restoring.name}: {why}."
    state.announce("CheckpointTransferFailed", text, member, warning=True)


def _start(state: State, world: World) -> None:
    there = {i: m.ready.copies for i in world.places if (m := state.members[i]).ready is not None}
    begun = restore_plan.begun_from(world.places.values(), there)
    if begun is not None:
        world.begins_from = (begun.step, begun.generation)
    lifecycle.start(state)


def _start_restored(state: State, world: World) -> None:
    """Starts the generation after the transfers, unless one of its members has restarted meanwhile."""
    state.deadlines.cancel(("fetch", str(world.generation.number)))
    first = state.members[world.order[0]].ready
    gone = [member for member in world.order if member not in state.ready]
    if not gone and first is not None and first.port == world.port:
        _start(state, world)
    else:
        restarted = " and ".join(gone) or str(world.order[0])
        lifecycle.stop(state, f"{restarted} restarted before generation {world.generation} started.")
