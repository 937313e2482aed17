"""What must hold after every step. Tests and the simulation check it at each; a service may.

Each is one sentence a reader can believe; a broken one raises with that sentence and what it was about.
"""

from __future__ import annotations

from collections.abc import Iterable

from master.core.actions import Action, DeletePod, Send
from master.core.member import SILENT
from master.core.state import COMMITTING, ENDED, GATHERING, REBUILDING, RUNNING, STOPPING, State
from master.core.world import World
from wire.messages import Start


class Broken(AssertionError):
    """An invariant does not hold: a bug of the core."""


def check(state: State) -> None:
    """The state by itself."""
    _check_stage(state)
    if state.world is not None:
        _check_ranks(state, state.world)
    _check_members(state)
    _check_orders(state)


def check_actions(state: State, actions: Iterable[Action]) -> None:
    """What the step that led to this state wants done."""
    for action in actions:
        if isinstance(action, Send) and isinstance(action.message, Start):
            _hold(state.world is not None and action.message.generation == state.world.generation,
                  "a Start is only sent for the current generation", action)  # fmt: skip
            _hold(state.world is None or state.saved_version >= state.world.version,
                  "a Start is only sent for a generation that is saved", action)  # fmt: skip
        if isinstance(action, DeletePod):
            member = state.members.get(action.member)
            _hold(member is None or member.deleting or state.is_over,
                  "only members that were given up or dismissed are deleted", action)  # fmt: skip


def _hold(claim: bool, sentence: str, about: object) -> None:
    if not claim:
        raise Broken(f"{sentence}: {about}")


def _check_stage(state: State) -> None:
    has_world = state.world is not None
    _hold(has_world or state.stage not in (COMMITTING, RUNNING, STOPPING), "this stage has a world", state.stage)
    _hold(not has_world or state.stage not in (GATHERING, REBUILDING), "this stage has no world", state.stage)
    if state.world is not None:
        _hold(state.world.generation.number <= state.number, "generation numbers only grow", state.world.generation)


def _check_ranks(state: State, world: World) -> None:
    places = sorted(world.places.values(), key=lambda p: p.group_rank)
    _hold([p.group_rank for p in places] == list(range(len(places))), "group ranks are 0, 1, 2, …", places)
    first = 0
    for place in places:
        _hold(place.first_rank == first, "every rank is held exactly once", place)
        first += place.nproc
    _hold(first == world.world_size, "the ranks are as many as the world is large", world.world_size)
    indexes = [(p.role, p.rank_index) for p in places]
    _hold(len(set(indexes)) == len(indexes), "no rank index is held twice in a world", indexes)
    _hold(world.waiting <= set(world.places), "only members of the world are waited for", world.waiting)


def _check_members(state: State) -> None:
    indexes = [(m.role, m.rank_index) for m in state.members.values() if m.rank_index is not None]
    _hold(len(set(indexes)) == len(indexes), "no two members hold one rank index", sorted(indexes))
    held = {m.rank_index: m.id for m in state.members.values() if m.rank_index is not None}
    _hold(state.holders == held, "it is known who holds a rank index", (state.holders, held))
    for session, member_id in state.sessions.items():
        _hold(state.members[member_id].session == session, "a connection belongs to one member", (session, member_id))
    for member_id in state.ready:
        member = state.members.get(member_id)
        _hold(member is not None and member.is_usable and member.ready is not None, "who is ready is there", member_id)
    _hold(state.doubted <= set(state.members), "only members are doubted", state.doubted)
    _hold(state.coming <= set(state.members), "only members are coming", state.coming)
    _check_crowd(state)


def _check_crowd(state: State) -> None:
    """Of a seat, only of what is its own."""
    crowd = state.crowd
    present = {m.id for m in state.members.values() if m.greeted and not m.deleting}
    unheard = {i for i in present if (m := state.members[i]).doubt is not None or m.life == SILENT}
    counted = [{i for i in those if i in state.members} for those in (crowd.present, crowd.unheard)]
    _hold(counted == [present, unheard], "it is known who is heard", (counted, present, unheard))
    on_bad_nodes = [i for i, node in crowd.unheard.items() if node in crowd.bad_nodes]
    _hold(crowd.excused == len(on_bad_nodes), "it is known whose node is to blame", (crowd.excused, on_bad_nodes))
    nodes = {i: state.members[i].node for i in unheard}
    _hold(nodes == {i: crowd.unheard[i] for i in unheard}, "it is known on which nodes", (nodes, crowd.unheard))
    if not state.spec.is_ps:
        _hold(crowd.present <= state.members.keys(), "only members are counted", crowd.present)


def _check_orders(state: State) -> None:
    for member in state.members.values():
        for order in member.orders.values():
            if isinstance(order.message, Start):
                _hold(state.stage == RUNNING and state.world is not None
                      and order.message.generation == state.world.generation,
                      "no Start of an old generation is pending", (member.id, order))  # fmt: skip
            if member.session is not None and state.stage != ENDED:
                _hold(state.deadlines.at(("order", f"{member.id}/{order.id}")) is not None,
                      "a pending order is repeated", (member.id, order))  # fmt: skip
