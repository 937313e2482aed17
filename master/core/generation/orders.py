"""Orders to sidecars: numbered, and repeated to the member's current connection until they are acknowledged.

A message can be lost with its connection and a sidecar can be restarted between order and answer, so an order is not
done because it was sent. It is repeated after 0.5 s, then more slowly up to every 2 s, and at once on a new
connection. Doing it twice is harmless on the other side. A Stop makes every older Start to the same member pointless
and replaces it.

A member that was told to stop has all graces, and some time more, from the moment in which it could hear of it: the
generation may have begun to stop long before, with the member's link down or another master in charge.
"""

from __future__ import annotations

from collections.abc import Callable

from outrider.master.core.actions import Send
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member, Order
from outrider.wire.ids import Generation, MemberId, OrderId
from outrider.wire.messages.checkpoints import Fetch, SaveState
from outrider.wire.messages.directions import FromMaster
from outrider.wire.messages.generation import Start, Stop
from outrider.wire.messages.membership import Finish
from outrider.wire.messages.node_check import Check

FIRST_REPEAT = 0.5
SLOWEST_REPEAT = 2.0
CHECK_REPEAT = 5.0
"""For an order whose answer takes seconds by its nature."""
STOP_SLACK = 10.0
"""Seconds beyond all graces: after that a member that does not stop is left out."""
NUMBERS = 1_000_000
"""Order numbers a term: a sidecar answers to a new master what an earlier one ordered, and that acknowledges nothing
else only where no two masters use the same number."""
UNENDED = 10.0
"""Seconds that its sidecar then has to end it the hard way, before its pod is deleted."""


def give(
    state: State,
    member: Member,
    make: Callable[[OrderId], FromMaster],
    reason: str,
    generation: Generation | None = None,
) -> OrderId:
    """Gives a new order; it waits for a connection where there is none."""
    number = OrderId((state.term - 1) * NUMBERS + state.next_order)
    state.next_order += 1
    message = make(number)
    interval = CHECK_REPEAT if isinstance(message, Check | Fetch | SaveState) else FIRST_REPEAT
    order = Order(number, message, generation or state.generation, reason, interval)
    member.orders[number] = order
    _send(state, member, order)
    if isinstance(order.message, Stop):
        await_stopped(state, member)
    return number


def acknowledge(state: State, member: Member, number: OrderId) -> Order | None:
    """Takes the order off the list; None where it was not on it."""
    state.deadlines.cancel(("order", f"{member.id}/{number}"))
    order = member.orders.pop(number, None)
    if order is not None and isinstance(order.message, Stop) and not _is_told_to_stop_anything(member):
        state.deadlines.cancel(("unended", member.id))
    return order


def longest_stop(spec: JobSpec) -> float:
    """Seconds after which a Stop that was heard is overdue; the sidecar counts as many before it kills its trainer."""
    return spec.save_grace + max(spec.stop_grace, spec.handler_grace) + STOP_SLACK


def await_stopped(state: State, member: Member) -> None:
    """It hears us from now on: its time to do the Stops that it was given begins."""
    if _is_told_to_stop_anything(member):
        state.deadlines.set(("unended", member.id), state.now + longest_stop(state.spec) + UNENDED)


def drop_starts(state: State, member: Member, generation: Generation) -> None:
    """The member has started this generation, or shall not start it any more."""
    _drop(state, member, lambda message: isinstance(message, Start) and message.generation <= generation)


def drop_stops(state: State, member: Member, generation: Generation) -> None:
    """Nothing of this generation or of a lower one runs in the member."""
    _drop(state, member, lambda message: isinstance(message, Stop) and message.generation <= generation)


def drop_fetches(state: State, member: Member) -> None:
    """The world that the copies were for is over, or waits no longer."""
    _drop(state, member, lambda message: isinstance(message, Fetch))


def drop_all(state: State, member: Member) -> None:
    _drop(state, member, lambda _message: True)


def is_told_to_stop(member: Member, generation: Generation) -> bool:
    return any(isinstance(o.message, Stop) and o.message.generation >= generation for o in member.orders.values())


def _is_told_to_stop_anything(member: Member) -> bool:
    return any(isinstance(o.message, Stop) for o in member.orders.values())


def is_told_to_finish(member: Member) -> bool:
    return any(isinstance(o.message, Finish) for o in member.orders.values())


def resend(state: State, member: Member) -> None:
    """Everything pending, in order, on the member's new connection."""
    for number in sorted(member.orders):
        member.orders[number].interval = FIRST_REPEAT
        _send(state, member, member.orders[number])
    await_stopped(state, member)


def repeat(state: State, key: str) -> None:
    """The deadline of an order has come without an acknowledgement."""
    member_id, _, number = key.rpartition("/")
    member = state.members.get(MemberId(member_id))
    order = member.orders.get(OrderId(int(number))) if member is not None else None
    if member is None or order is None:
        return
    order.interval = max(order.interval, min(2 * order.interval, SLOWEST_REPEAT))
    _send(state, member, order)


def _drop(state: State, member: Member, is_dropped: Callable[[FromMaster], bool]) -> None:
    for number in [n for n, order in member.orders.items() if is_dropped(order.message)]:
        acknowledge(state, member, number)


def _send(state: State, member: Member, order: Order) -> None:
    """Nothing to a closed connection, and no timer either: the next Hello brings it on its way."""
    if member.session is None:
        return
    state.act(Send(member.session, member.id, order.message, order.generation, order.reason))
    state.deadlines.set(("order", f"{member.id}/{order.id}"), state.now + order.interval)
