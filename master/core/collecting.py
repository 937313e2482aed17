"""Questions to every member (stacks, collectives): asked at once, answered within six seconds or counted as missing."""

from __future__ import annotations

from master.core import answers, orders, standing
from master.core.actions import Deliver
from master.core.member import ALIVE, Member
from master.core.state import Collection, State
from wire.ids import OrderId
from wire.messages import Answer, Ask

ANSWER_WITHIN = 6.0


def ask(state: State, request: str, what: str, *, is_ours: bool = False) -> None:
    """Asks every member of the world, or every member where there is none. Where we ask, the answers stay here."""
    collection = Collection(request, what, is_ours=is_ours)
    state.collections[request] = collection
    world = state.world
    ids = list(world.places) if world is not None else sorted(state.members)
    for member_id in ids:
        member = state.members.get(member_id)
        if member is None or member.session is None or member.life != ALIVE:
            collection.missing.add(member_id)
            continue
        reason = f"{member.id} is asked for its {what}."
        number = orders.give(state, member, lambda order: Ask(order, what), reason)
        collection.orders[number] = member.id
    state.deadlines.set(("collect", request), state.now + ANSWER_WITHIN)
    _deliver_if_complete(state, collection)


def answered(state: State, member: Member, message: Answer) -> None:
    orders.acknowledge(state, member, message.order)
    for collection in list(state.collections.values()):
        if collection.orders.pop(OrderId(message.order), None) is not None:
            if collection.is_ours:
                collection.said[member.id] = answers.rows(message.body, collection.known)
            else:
                collection.bodies[member.id] = message.body
            _deliver_if_complete(state, collection)


def overdue(state: State, request: str) -> None:
    """Who has not answered is missing: in a hang that is what one wants to know."""
    collection = state.collections.get(request)
    if collection is None:
        return
    for number, member_id in collection.orders.items():
        collection.missing.add(member_id)
        member = state.members.get(member_id)
        if member is not None:
            orders.acknowledge(state, member, number)
    collection.orders.clear()
    _deliver_if_complete(state, collection)


def _deliver_if_complete(state: State, collection: Collection) -> None:
    if collection.orders:
        return
    del state.collections[collection.request]
    state.deadlines.cancel(("collect", collection.request))
    if collection.is_ours:
        state.answered.append(collection)
        standing.stir(state)
        return
    bodies = tuple(sorted(collection.bodies.items()))
    total = len(bodies) + len(collection.missing)
    reason = f"{len(bodies)} of {total} members gave their {collection.what}."
    state.act(Deliver(collection.request, bodies, tuple(sorted(collection.missing)), state.generation, reason))
