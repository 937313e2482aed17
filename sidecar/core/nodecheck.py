"""Runs one round of the node check through the template or launcher, and always answers the master.

The round uses up the port that the last Ready offered. An order that is repeated while its probe runs is ignored; one
that has been answered is answered again. If the hook does not answer, the round ends with that error.
"""

from __future__ import annotations

from outrider.sidecar.core import outbox, supervision
from outrider.sidecar.core.actions import Action, Announce, RunCheck
from outrider.sidecar.core.state import Checking, State
from outrider.wire.messages.node_check import Check, Checked

SLACK = 5.0
"""Seconds beyond those of the probe that the hooks have to end it and report."""


def check(state: State, order: Check, now: float) -> list[Action]:
    current = state.checking
    if current is not None and current.order.order == order.order:
        return [] if current.answer is None else _send(state, current.answer)
    trainer = state.trainer
    if trainer is None or not trainer.connection or state.ending is not None:
        return []  # the master repeats the order, and gives it up in time
    state.checking = Checking(order, now + order.seconds + SLACK)
    if order.port == state.port:
        state.port = 0  # a port that was offered once is not offered again
    return [_announce(order), *_order(state)]


def _announce(order: Check) -> Announce:
    others = ", ".join([*(str(peer.member) for peer in order.peers), *order.awaited]) or "no other member"
    return Announce("NodeCheck", f"check round {order.round}: measuring with {others}")


def _order(state: State) -> list[Action]:
    checking, trainer, me = state.checking, state.trainer, state.me
    if checking is None or checking.answer is not None or trainer is None or me is None or not trainer.connection:
        return []
    nproc, reason = trainer.nproc or me.nproc, f"check round {checking.order.round}"
    return [RunCheck(trainer.connection, me.member, nproc, checking.order, state.generation, reason)]


def reconnected(state: State) -> list[Action]:
    """Repeats an order that may have been lost with the connection; a hook that has received it ignores the repeat."""
    return _order(state)


def answered(state: State, answer: Checked) -> list[Action]:
    """Takes the probe's result or failure, and reports it."""
    checking = state.checking
    if checking is None or checking.order.order != answer.order or checking.answer is not None:
        return []
    checking.answer, checking.give_up_at = answer, None
    again = supervision.find_port(state, "the probe has used the port") if state.port == 0 else []
    return [Announce("NodeChecked", _sentence(answer)), *_send(state, answer), *again]


def _sentence(answer: Checked) -> str:
    """The result for the log, without times that were not measured (a probe that died has none)."""
    what = f"check round {answer.round}: {answer.result}{f' ({answer.error})' if answer.error else ''}"
    compute = [f"compute {answer.compute:.3f} s"] if answer.compute > 0 else []
    peers = [f"all-gather with {p.member} {p.error or f'{p.seconds:.3f} s'}" for p in answer.peers]
    return "; ".join([what, *compute, *peers])


def _send(state: State, answer: Checked) -> list[Action]:
    return outbox.say(state, answer, f"check round {answer.round}: {answer.result}")


def took_too_long(state: State, now: float) -> list[Action]:
    checking = state.checking
    assert checking is not None
    checking.give_up_at = None
    order = checking.order
    error = "the template or launcher did not answer"
    return answered(state, Checked(order.order, order.round, "no answer", error, elapsed=order.seconds + SLACK))


def trainer_ended(state: State) -> list[Action]:
    """Answers that the round was interrupted, as the probe ended with the template or launcher."""
    checking = state.checking
    if checking is None or checking.answer is not None:
        return []
    order = checking.order
    return answered(state, Checked(order.order, order.round, "interrupted", "the template or launcher ended"))
