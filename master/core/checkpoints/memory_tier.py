"""Which checkpoint in memory every rank has, while a world runs. Each member keeps that one until there is a newer one.

Members say what is whole in their memory. A replicated state is kept when every member has it. A sharded one is copied
to partners first, each member's to the next of the world, so that it survives any one of them; it is kept when every
rank has it and every partner holds it. A save of the marked path, which rank 0 makes alone, is given to all others
(`checkpoints.replication`). What is not kept may be overwritten by the next save, so copies that are slower than saves
keep the step before. Nobody waits for any of this, and within a generation a kept step never goes back.
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
"""Steps that some ranks have and others not, yet."""
LEAST = 30.0
"""Seconds for a copy to a partner; more where it is large."""


def remembered(state: State, member: Member, message: Remembered) -> None:
    world = _running(state, member)
    if world is None or message.generation != world.generation:
        return
    keeping, place = world.keeping, world.places[member.id]
    if not place.first_rank <= message.rank < place.first_rank + place.nproc or message.step <= keeping.kept:
        return
    if message.marked:
        replication.begin(state, world, member.id, message)
        if not keeping.orders:  # it is alone
            _copied(state, world)
        return
    version = (message.step, message.sharded)
    keeping.lengths[message.rank] = message.length
    keeping.said.setdefault(version, set()).add(message.rank)
    for old in sorted(keeping.said)[:-VERSIONS]:
        del keeping.said[old]
    wanted = world.world_size if message.sharded else len(world.places)
    if len(keeping.said.get(version, ())) < wanted:
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
    """One step at a time; the newest that comes meanwhile is next."""
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
    """All of it runs. What it began from has lost a holder with each member that was lost, and gets it back: another
    loss before the next save would find no copy."""
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
    wanted = tuple(
        restore.wanted_from(owner, rank, local, keeping.lengths.get(rank, 0), held=True)
        for local, rank in enumerate(_ranks(place))
    )
    if len(wanted) > room:
        keeping.failed = True
        _no_room(state, holder.id, room, owner.id, len(wanted))
        return
    reason = f"{holder.id} holds a copy of step {step} of {owner.id}."
    what = (world.generation, step, made_in, wanted, True, patience, reason)
    keeping.orders[orders.give(state, holder, lambda order: Fetch(order, *what), reason)] = holder.id


def fetched(state: State, member: Member, message: Fetched) -> None:
    world = _running(state, member)
    if world is None or message.order not in world.keeping.orders:
        return
    del world.keeping.orders[message.order]
    if message.error:
        _not_held(state, world, member.id, message.step, message.error)
    replication.fetched(state, world, member, message)
    if not world.keeping.orders:
        _copied(state, world)


def overdue(state: State, number: str) -> None:
    """The deadline of copies to partners."""
    world = state.world
    if world is None or state.stage != RUNNING or str(world.generation.number) != number:
        return
    for order, member_id in sorted(world.keeping.orders.items()):
        _not_held(state, world, member_id, _step_of(state, member_id, order), "it was not there in time")
        if (member := state.members.get(member_id)) is not None:
            orders.acknowledge(state, member, order)
    world.keeping.orders.clear()
    replication.give_up(world.keeping)
    _copied(state, world)


def _step_of(state: State, member_id: MemberId, order: OrderId) -> int:
    member = state.members.get(member_id)
    pending = member.orders.get(order) if member is not None else None
    return pending.message.step if pending is not None and isinstance(pending.message, Fetch) else -1


def _not_held(state: State, world: World, member: MemberId, step: int, why: str) -> None:
    """Told once a generation: where saves are faster than copies it is so each time."""
    keeping = world.keeping
    keeping.failed = True
    if not keeping.told:
        keeping.told = True
        kept = "; the step before is kept" if keeping.copied >= 0 else ""
        what = replication.described(keeping, step) if step in keeping.counted else f"step {step}"
        text = f"{member} could not hold a copy of {what}: {why}{kept}."
        state.announce("ReplicationSkipped", text, member, warning=True)


def _no_room(state: State, holder: MemberId, room: int, owner: MemberId, ranks: int) -> None:
    """Told once a job: the worlds after this one are hardly better."""
    sentence = (
        f"{holder}, with {counted(room, 'local rank')}, has no room for copies of the {ranks} of {owner}: no sharded "
        f"checkpoint is kept in memory where members have unequal numbers of local ranks, and when a member is lost "
        f"all go on from storage"
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
        said = Remembered(world.generation, rank, waiting, keeping.lengths.get(rank, 0), False, True, counted)
        replication.begin(state, world, place.member, said)
    elif waiting > keeping.copied:
        _copy(state, world, keeping, waiting)


# -- kept ---------------------------------------------------------------------------------------------------------
def _keep(state: State, world: World, step: int) -> None:
    keeping = world.keeping
    if step <= keeping.kept:
        return
    keeping.kept = step
    keeping.said = {version: ranks for version, ranks in keeping.said.items() if version[0] > step}
    if step in keeping.counted:  # a save of the marked path is good for whoever joins, in a world of any size
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
    """A world of any size can begin from it: whoever joins is given it."""
    state.checkpoint_step = keeping.finished = step
    readiness.stir(state)


def again(state: State, member: Member) -> None:
    """Also after each Welcome."""
    world = _running(state, member)
    if world is None or world.keeping.kept < 0 or member.session is None:
        return
    reason = f"Every rank of generation {world.generation} has version {world.keeping.kept} in memory."
    kept = Kept(world.generation, world.keeping.kept)
    state.act(Send(member.session, member.id, kept, world.generation, reason))
