"""Tracks which in-memory checkpoint every rank of a running generation has; members keep it until a newer one is.

Members report which checkpoints are complete in their memory. If all ranks have the same state, it is replicated once
every member has it. A sharded state is first copied to partners, each member's to the next one of the generation, so
that it survives the loss of any one member; it is replicated once every rank and every partner has its part. A save of
the checkpoint path, which rank 0 writes alone, is sent to all other members (`checkpoints.replication`).

The next save may overwrite a checkpoint that is not replicated, so if copies are slower than saves, the step before is
kept. Training never waits for any of this, and within a generation the replicated step never goes back.
"""

from __future__ import annotations

from outrider.master.core.actions import Send
from outrider.master.core.checkpoints import data_position, replication, restore
from outrider.master.core.generation import orders, readiness
from outrider.master.core.state.generation import Keeping, Place, World
from outrider.master.core.state.job import RUNNING, State
from outrider.master.core.state.member import Member
from outrider.master.core.text import counted
from outrider.wire.ids import Generation, MemberId, OrderId
from outrider.wire.messages.checkpoints import Fetch, Fetched, Kept, Remembered

VERSIONS = 4
"""The most steps that are tracked while only some ranks have them."""
LEAST = 30.0
"""Seconds allowed for a copy to a partner; a large one gets more."""


def remembered(state: State, member: Member, message: Remembered) -> None:
    """Handles the report that a rank's checkpoint is complete in its member's memory."""
    world = _running(state, member)
    if world is None or message.generation != world.generation:
        return
    keeping, place = world.keeping, world.places[member.id]
    if not place.first_rank <= message.rank < place.first_rank + place.nproc or message.step <= keeping.kept:
        return
    if message.marked:
        replication.begin(state, world, member.id, message)
        if not keeping.orders:  # the member is the only one
            _copied(state, world)
        return
    version = (message.step, message.sharded)
    keeping.lengths[message.rank] = message.length
    keeping.said.setdefault(version, set()).add(message.rank)
    for old in sorted(keeping.said)[:-VERSIONS]:
        del keeping.said[old]
    needed = world.world_size if message.sharded else len(world.places)
    if len(keeping.said.get(version, ())) < needed:
        return
    if message.sharded and len(world.places) > 1:
        _copy(state, world, keeping, message.step)
    else:
        _keep(state, world, message.step)
        _finished(state, keeping, message.step)


def _running(state: State, member: Member) -> World | None:
    world = state.world
    return world if world is not None and state.stage == RUNNING and member.id in world.places else None


# -- partners -----------------------------------------------------------------------------------------------------
def _copy(state: State, world: World, keeping: Keeping, step: int) -> None:
    """Copies one step to partners at a time; the newest that is reported meanwhile is next."""
    if keeping.orders or step <= keeping.copied:
        keeping.waiting = max(keeping.waiting, step)
        return
    keeping.copied, keeping.failed, longest = step, False, 0.0
    for number, source in enumerate(world.order):
        holder = state.members.get(world.order[(number + 1) % len(world.order)])
        owner, place = state.members.get(source), world.places[source]
        if holder is None or owner is None:
            keeping.failed = True
            continue
        patience = LEAST + sum(keeping.lengths.get(r, 0) for r in _ranks(place)) / restore.SLOWEST
        longest = max(longest, patience)
        _order(state, world, holder, owner, step, world.generation, patience)
    state.deadlines.set(("copied", str(world.generation.number)), state.now + longest + restore.SLACK)


def begin(state: State, world: World) -> None:
    """Once the whole generation runs: copies the checkpoint that it began from to partners that do not have it.

    Each lost member held replicas. Without this, another loss before the next save could find no copy.
    """
    found, longest = world.restoring, 0.0
    if found is None or found.step < 0:
        return
    for number, source in enumerate(world.order):
        holder = state.members.get(world.order[(number + 1) % len(world.order)])
        owner = state.members.get(source)
        if source in found.unheld and holder is not None and owner is not None:
            patience = LEAST + found.unheld[source] / restore.SLOWEST
            longest = max(longest, patience)
            _order(state, world, holder, owner, found.step, found.made_in, patience)
    found.unheld.clear()
    if world.keeping.orders:
        state.deadlines.set(("copied", str(world.generation.number)), state.now + longest + restore.SLACK)


def _ranks(place: Place) -> range:
    return range(place.first_rank, place.first_rank + place.nproc)


def _order(
    state: State, world: World, holder: Member, owner: Member, step: int, made_in: Generation, patience: float
) -> None:
    keeping = world.keeping
    place, room = world.places[owner.id], world.places[holder.id].nproc
    copies = tuple(
        restore.source_of(owner, rank, local, keeping.lengths.get(rank, 0), held=True)
        for local, rank in enumerate(_ranks(place))
    )
    if len(copies) > room:
        keeping.failed = True
        _no_room(state, holder.id, room, owner.id, len(copies))
        return
    reason = f"{holder.id} receives a replica of step {step} from {owner.id}."
    what = (world.generation, step, made_in, copies, True, patience, reason)
    keeping.orders[orders.give(state, holder, lambda order: Fetch(order, *what), reason)] = holder.id


def fetched(state: State, member: Member, message: Fetched) -> None:
    """Handles the end of a transfer, with or without an error."""
    world = _running(state, member)
    if world is None or message.order not in world.keeping.orders:
        return
    del world.keeping.orders[message.order]
    if message.error:
        _not_replicated(state, world, member.id, message.step, message.error)
    else:
        state.counters.note_checkpoint("replicate", message.seconds)
    replication.fetched(state, world, member, message)
    if not world.keeping.orders:
        _copied(state, world)


def overdue(state: State, number: str) -> None:
    """Gives up copies that have missed their deadline."""
    world = state.world
    if world is None or state.stage != RUNNING or str(world.generation.number) != number:
        return
    for order, member_id in sorted(world.keeping.orders.items()):
        _not_replicated(state, world, member_id, _step_of(state, member_id, order), "it did not arrive in time")
        if (member := state.members.get(member_id)) is not None:
            orders.acknowledge(state, member, order)
    world.keeping.orders.clear()
    replication.give_up(world.keeping)
    _copied(state, world)


def _step_of(state: State, member_id: MemberId, order: OrderId) -> int:
    member = state.members.get(member_id)
    pending = member.orders.get(order) if member is not None else None
    return pending.message.step if pending is not None and isinstance(pending.message, Fetch) else -1


def _not_replicated(state: State, world: World, member: MemberId, step: int, why: str) -> None:
    """Announces a failed copy once a generation: if saves are faster than copies, every copy fails."""
    keeping = world.keeping
    keeping.failed = True
    if not keeping.reported:
        keeping.reported = True
        kept = "; the replica of the step before stays in memory" if keeping.copied >= 0 else ""
        what = replication.described(keeping, step) if step in keeping.counted else f"step {step}"
        text = f"{member} did not receive a replica of {what}: {why}{kept}."
        state.announce("ReplicationSkipped", text, member, warning=True)


def _no_room(state: State, holder: MemberId, room: int, owner: MemberId, ranks: int) -> None:
    """Announces once a job that replicas do not fit: later generations will hardly differ."""
    sentence = (
        f"{holder}, with {counted(room, 'local rank')}, has no room for replicas of the {ranks} local ranks of "
        f"{owner}: sharded checkpoints are not replicated in memory if members have different numbers of local ranks, "
        f"and when a member is lost all ranks resume from storage"
    )
    if all(note.sentence != sentence for note in state.checkpoints.data_notes):
        data_position.add(state, "ReplicationSkipped", sentence)
        state.announce("ReplicationSkipped", f"{sentence}.", holder, warning=True)


def _copied(state: State, world: World) -> None:
    keeping = world.keeping
    state.deadlines.cancel(("copied", str(world.generation.number)))
    if not keeping.failed:
        _keep(state, world, keeping.copied)
    waiting, keeping.waiting = keeping.waiting, -1
    if waiting > keeping.copied and waiting in keeping.counted:
        place = next(iter(world.places.values()))
        rank, counted = place.first_rank, keeping.counted[waiting]
        newest = Remembered(world.generation, rank, waiting, keeping.lengths.get(rank, 0), False, True, counted)
        replication.begin(state, world, place.member, newest)
    elif waiting > keeping.copied:
        _copy(state, world, keeping, waiting)


# -- replicated ---------------------------------------------------------------------------------------------------
def _keep(state: State, world: World, step: int) -> None:
    keeping = world.keeping
    if step <= keeping.kept:
        return
    keeping.kept = step
    keeping.said = {version: ranks for version, ranks in keeping.said.items() if version[0] > step}
    if step in keeping.counted:  # any new member can load a save of the checkpoint path, at any world size
        what, state.checkpoints.replicated_step = replication.described(keeping, step), keeping.counted[step]
        _finished(state, keeping, state.checkpoints.replicated_step)
    else:
        what, state.checkpoints.replicated_step = f"the checkpoint of step {step}", step
    state.announce("CheckpointReplicated", f"Every rank has {what} in memory.")
    for member_id in world.order:
        if (member := state.members.get(member_id)) is not None:
            again(state, member)
    state.mark_status()


def _finished(state: State, keeping: Keeping, step: int) -> None:
    """Counts the checkpoint as finished: a generation of any size can begin from it, since new members receive it."""
    state.checkpoint_step = keeping.finished = step
    readiness.stir(state)


def again(state: State, member: Member) -> None:
    """Tells a member the replicated version, which its memory must keep; also after each Welcome."""
    world = _running(state, member)
    if world is None or world.keeping.kept < 0 or member.session is None:
        return
    reason = f"Every rank of generation {world.generation} has version {world.keeping.kept} in memory."
    kept = Kept(world.generation, world.keeping.kept)
    state.act(Send(member.session, member.id, kept, world.generation, reason))
