"""Orders to sidecars: numbered, and repeated to the member's current connection until they are acknowledged.

A message can be lost with its connection, and a sidecar can be restarted between order and answer, so a sent order may
not have been carried out. It is repeated after 0.5 s, then more slowly up to every 2 s, and at once on a new
connection. Carrying it out twice is harmless. A Stop replaces every older Start to the same member.

A member that is ordered to stop has all grace periods, and some time more, from the moment at which it could receive
the order: the generation may have begun to stop long before, while the member was not connected or another master was
in charge.
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
"""Seconds between repetitions of an order whose answer takes seconds by its nature."""
STOP_SLACK = 10.0
"""Seconds beyond all grace periods after which the job continues without a member that has not stopped."""
NUMBERS = 1_000_000
"""Order numbers in each term. A sidecar may answer an earlier master's order to a new master; with distinct numbers
such an answer never acknowledges another order."""
UNENDED = 10.0
"""Seconds that the sidecar of such a member then has to kill its trainer before its pod is deleted."""


def give(
    state: State,
    member: Member,
    make: Callable[[OrderId], FromMaster],
    reason: str,
    generation: Generation | None = None,
) -> OrderId:
    """Gives a member a new order, which waits if the member is not connected."""
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
    """Removes an acknowledged order from the member's list; None if it was not there."""
    state.deadlines.cancel(("order", f"{member.id}/{number}"))
    order = member.orders.pop(number, None)
    if order is not None and isinstance(order.message, Stop) and not _has_any_stop(member):
        state.deadlines.cancel(("unended", member.id))
    return order


def longest_stop(spec: JobSpec) -> float:
    """Seconds after which a received Stop is overdue; the sidecar waits as long before it kills its trainer."""
    return spec.save_grace + max(spec.stop_grace, spec.handler_grace) + STOP_SLACK


def await_stopped(state: State, member: Member) -> None:
    """Starts the member's time to carry out its pending Stops: it can receive them from now on."""
    if _has_any_stop(member):
        state.deadlines.set(("unended", member.id), state.now + longest_stop(state.spec) + UNENDED)


def stops_until(state: State, member_id: MemberId) -> float:
    """The moment at which a member's time to carry out its pending Stops is over; -inf if it has none."""
    at = state.deadlines.at(("unended", member_id))
    return float("-inf") if at is None else at - UNENDED


def drop_starts(state: State, member: Member, generation: Generation) -> None:
    """Drops Starts up to this generation: the member has started it, or should not start it any more."""
    _drop(state, member, lambda message: isinstance(message, Start) and message.generation <= generation)


def drop_stops(state: State, member: Member, generation: Generation) -> None:
    """Drops Stops up to this generation: the member runs nothing of it or of a lower one."""
    _drop(state, member, lambda message: isinstance(message, Stop) and message.generation <= generation)


def drop_fetches(state: State, member: Member) -> None:
    """Drops orders to fetch replicas: their generation is over or waits no longer."""
    _drop(state, member, lambda message: isinstance(message, Fetch))


def drop_all(state: State, member: Member) -> None:
    _drop(state, member, lambda _message: True)


def has_stop(member: Member, generation: Generation) -> bool:
    return any(isinstance(o.message, Stop) and o.message.generation >= generation for o in member.orders.values())


def _has_any_stop(member: Member) -> bool:
    return any(isinstance(o.message, Stop) for o in member.orders.values())


def has_finish(member: Member) -> bool:
    return any(isinstance(o.message, Finish) for o in member.orders.values())


def resend(state: State, member: Member) -> None:
    """Sends all pending orders again, in order, on the member's new connection."""
    for number in sorted(member.orders):
        member.orders[number].interval = FIRST_REPEAT
        _send(state, member, member.orders[number])
    await_stopped(state, member)


def repeat(state: State, key: str) -> None:
    """Sends an order again that was not acknowledged by its deadline."""
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
    """Sends an order if the member is connected; else it is sent after the next Hello, without a timer."""
    if member.session is None:
        return
    state.act(Send(member.session, member.id, order.message, order.generation, order.reason))
    state.deadlines.set(("order", f"{member.id}/{order.id}"), state.now + order.interval)
