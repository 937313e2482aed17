"""Asks every member for diagnostics (stacks, collectives); an answer later than six seconds counts as missing.

A rehearsal goes to one member alone: all members of a job have the same script, and a rehearsal takes as long as the
script's imports.
"""

from __future__ import annotations

from outrider.master.core.actions import Deliver
from outrider.master.core.generation import orders, readiness
from outrider.master.core.hangs import evidence_reader
from outrider.master.core.state.hangs import Collection
from outrider.master.core.state.job import State
from outrider.master.core.state.member import ALIVE, Member
from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.diagnostics import REHEARSAL, Answer, Ask

ANSWER_WITHIN = 6.0
REHEARSED_WITHIN = 140.0
"""Seconds for an answer to a rehearsal: the sidecar sends one within 130 s (`outrider.sidecar.shell.hooks_link`)."""


def ask(state: State, request: str, what: str, *, is_ours: bool = False) -> None:
    """Asks the generation's members, or all members if there is none. `is_ours`: the answers stay in the master."""
    collection = Collection(request, what, is_ours=is_ours)
    state.hangs.collections[request] = collection
    world = state.world
    ids = list(world.places) if world is not None else sorted(state.members)
    if what == REHEARSAL:
        ids = [member_id for member_id in ids if _can_answer(state, member_id)][:1]
    for member_id in ids:
        member = state.members.get(member_id)
        if member is None or not _can_answer(state, member_id):
            collection.missing.add(member_id)
            continue
        reason = f"The master asks {member.id} for its {what}."
        number = orders.give(state, member, lambda order: Ask(order, what), reason)
        collection.orders[number] = member.id
    seconds = REHEARSED_WITHIN if what == REHEARSAL else ANSWER_WITHIN
    state.deadlines.set(("collect", request), state.now + seconds)
    _deliver_if_complete(state, collection)


def _can_answer(state: State, member_id: MemberId) -> bool:
    member = state.members.get(member_id)
    return member is not None and member.session is not None and member.life == ALIVE


def answered(state: State, member: Member, message: Answer) -> None:
    orders.acknowledge(state, member, message.order)
    for collection in list(state.hangs.collections.values()):
        if collection.orders.pop(OrderId(message.order), None) is not None:
            if collection.is_ours:
                collection.said[member.id] = evidence_reader.rows(message.body, collection.known)
            else:
                collection.bodies[member.id] = message.body
            _deliver_if_complete(state, collection)


def overdue(state: State, request: str) -> None:
    """Counts members that have not answered as missing; in a hang that is evidence."""
    collection = state.hangs.collections.get(request)
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
    del state.hangs.collections[collection.request]
    state.deadlines.cancel(("collect", collection.request))
    if collection.is_ours:
        state.hangs.answered.append(collection)
        readiness.stir(state)
        return
    bodies = tuple(sorted(collection.bodies.items()))
    total = len(bodies) + len(collection.missing)
    reason = f"{len(bodies)} of {total} members sent their {collection.what}."
    state.act(Deliver(collection.request, bodies, tuple(sorted(collection.missing)), state.generation, reason))
