"""Invariants of the state that must hold after every step.

Tests and the simulation check them at each step; a service may. Each is one sentence; a broken one raises an error with
that sentence and the values concerned.
"""

from __future__ import annotations

from collections.abc import Iterable

from outrider.master.core.account import causes, goodput
from outrider.master.core.actions import Action, DeletePod, Send
from outrider.master.core.state.generation import World
from outrider.master.core.state.job import COMMITTING, ENDED, GATHERING, REBUILDING, RUNNING, STOPPING, State
from outrider.master.core.state.member import SILENT
from outrider.wire.messages.generation import Start

ACCOUNT_WITHIN = 1e-3
"""Seconds by which sums of many short times may differ."""


class Broken(AssertionError):
    """An invariant does not hold: a bug of the core."""

    def __init__(self, sentence: str, about: object) -> None:
        super().__init__(f"{sentence}: {about}")


def check(state: State) -> None:
    """Raises `Broken` if the state violates an invariant."""
    _check_stage(state)
    if state.world is not None:
        _check_ranks(state, state.world)
    _check_members(state)
    _check_orders(state)
    _check_account(state)


def check_actions(state: State, actions: Iterable[Action]) -> None:
    """Raises `Broken` if the actions of the step that led to this state violate an invariant."""
    for action in actions:
        if isinstance(action, Send) and isinstance(action.message, Start):
            if state.world is None or action.message.generation != state.world.generation:
                raise Broken("a Start is only sent for the current generation", action)
            if state.status.saved_version < state.world.version:
                raise Broken("a Start is only sent for a generation that is saved", action)
        if isinstance(action, DeletePod):
            member = state.members.get(action.member)
            if member is not None and not member.deleting and not state.is_over:
                raise Broken("only members that are marked as being deleted are deleted", action)


def _check_stage(state: State) -> None:
    world = state.world
    if world is None and state.stage in (COMMITTING, RUNNING, STOPPING):
        raise Broken("this stage has a generation", state.stage)
    if world is not None and state.stage in (GATHERING, REBUILDING):
        raise Broken("this stage has no generation", state.stage)
    if world is not None and world.generation.number > state.number:
        raise Broken("generation numbers only grow", world.generation)


def _check_ranks(state: State, world: World) -> None:
    places = sorted(world.places.values(), key=lambda p: p.group_rank)
    first = 0
    for number, place in enumerate(places):
        if place.group_rank != number:
            raise Broken("group ranks are 0, 1, 2, …", places)
        if place.first_rank != first:
            raise Broken("every rank is assigned exactly once", place)
        first += place.nproc
    if first != world.world_size:
        raise Broken("the number of ranks is the world size", world.world_size)
    if len({(p.role, p.rank_index) for p in places}) != len(places):
        raise Broken("no rank index is assigned twice in a generation", places)
    if not world.waiting <= world.places.keys():
        raise Broken("only members of the generation are waited for", world.waiting)


def _check_members(state: State) -> None:
    members, assigned = state.members, 0
    for member in members.values():
        if member.rank_index is not None:
            assigned += 1
            if state.placement.holders.get(member.rank_index) != member.id:
                raise Broken(
                    "each rank index has one member, the one in `holders`", (state.placement.holders, member.id)
                )
    if assigned != len(state.placement.holders):
        raise Broken("only members have a rank index", state.placement.holders)
    for session, member_id in state.membership.sessions.items():
        if members[member_id].session != session:
            raise Broken("a connection belongs to one member", (session, member_id))
    for member_id in state.ready:
        ready = members.get(member_id)
        if ready is None or not ready.is_usable or ready.ready is None:
            raise Broken("a ready member is usable and has sent Ready", member_id)
    if not state.membership.suspected <= members.keys():
        raise Broken("only members are suspected", state.membership.suspected)
    if not state.coming <= members.keys():
        raise Broken("only members are coming", state.coming)
    _check_crowd(state)


def _check_crowd(state: State) -> None:
    crowd, present, unheard = state.membership.crowd, 0, 0
    for member in state.members.values():
        is_present = member.greeted and not member.deleting
        is_unheard = is_present and (member.suspicion is not None or member.life == SILENT)
        present += is_present
        unheard += is_unheard
        if is_present != (member.id in crowd.present) or is_unheard != (member.id in crowd.unheard):
            raise Broken("the crowd knows each silent member", (crowd, member))
        if is_unheard and crowd.unheard[member.id] != member.node:
            raise Broken("the crowd knows the node of each silent member", (crowd.unheard, member))
    if crowd.excused != sum(node in crowd.bad_nodes for node in crowd.unheard.values()):
        raise Broken("the crowd counts the silent members on bad nodes", crowd)
    if not crowd.is_shared and len(crowd.present) != present:
        raise Broken("only members are counted", crowd.present)


def _check_orders(state: State) -> None:
    for member in state.members.values():
        for order in member.orders.values():
            if isinstance(order.message, Start):
                world = state.world
                if state.stage != RUNNING or world is None or order.message.generation != world.generation:
                    raise Broken("no Start of an old generation is pending", (member.id, order))
            is_repeated = state.deadlines.at(("order", f"{member.id}/{order.id}")) is not None
            if member.session is not None and state.stage != ENDED and not is_repeated:
                raise Broken("a pending order is repeated", (member.id, order))


def _check_account(state: State) -> None:
    spent, wall = goodput.unordered(state, state.now), goodput.wall(state, state.now)
    if abs(sum(spent.values()) - wall) > ACCOUNT_WITHIN:
        raise Broken("the causes of the time account add up to the wall time of all members", (spent, wall))
    for cause, seconds in spent.items():
        if cause not in causes.CAUSES or seconds < -ACCOUNT_WITHIN:
            raise Broken("each second of the time account has one cause", spent)
    for seat in state.account.seats.values():
        if seat.since > state.now + ACCOUNT_WITHIN:
            raise Broken("the time account does not look ahead", state.account.seats)
