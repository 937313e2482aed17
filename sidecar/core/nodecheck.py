"""One round of the node check in this member: ordered of the template or launcher, and always answered.

The port that the last Ready offered is used up by it. An order that is repeated while its probe runs is on its way, one
that was answered is answered again. Where no hook answers, the round ends all the same: with what went wrong.
"""

from __future__ import annotations

from outrider.sidecar.core import outbox, supervision
from outrider.sidecar.core.actions import Action, Announce, RunCheck
from outrider.sidecar.core.state import Checking, State
from outrider.wire.messages.node_check import Check, Checked

SLACK = 5.0
"""Seconds beyond those of the probe, in which the hooks end it and say so."""


def check(state: State, order: Check, now: float) -> list[Action]:
    going_on = state.checking
    if going_on is not None and going_on.order.order == order.order:
        return [] if going_on.answer is None else _say(state, going_on.answer)
    trainer = state.trainer
    if trainer is None or not trainer.connection or state.ending is not None:
        return []  # it is repeated, and the master gives it up in time
    state.checking = Checking(order, now + order.seconds + SLACK)
    if order.port == state.port:
        state.port = 0  # a port that was offered once is not offered again
    return [_announce(order), *_order(state)]


def _announce(order: Check) -> Announce:
    others = ", ".join([*(str(peer.member) for peer in order.peers), *order.awaited]) or "nobody"
    return Announce("NodeCheck", f"check round {order.round}: measured with {others}")


def _order(state: State) -> list[Action]:
    checking, trainer, me = state.checking, state.trainer, state.me
    if checking is None or checking.answer is not None or trainer is None or me is None or not trainer.connection:
        return []
    nproc, reason = trainer.nproc or me.nproc, f"check round {checking.order.round}"
    return [RunCheck(trainer.connection, me.member, nproc, checking.order, state.generation, reason)]


def reconnected(state: State) -> list[Action]:
    """The order may have been lost with the connection; a hook that has it, or has done it, takes it for a repeat."""
    return _order(state)


def answered(state: State, answer: Checked) -> list[Action]:
    """What the probe found, or what became of it."""
    checking = state.checking
    if checking is None or checking.order.order != answer.order or checking.answer is not None:
        return []
    checking.answer, checking.give_up_at = answer, None
    again = supervision.find_port(state, "the probe used the port up") if state.port == 0 else []
    return [Announce("NodeChecked", _sentence(answer)), *_say(state, answer), *again]


def _sentence(answer: Checked) -> str:
    """What was not measured is not told: a probe that died has no seconds."""
    what = f"check round {answer.round}: {answer.result}{f' ({answer.error})' if answer.error else ''}"
    compute = [f"compute {answer.compute:.3f} s"] if answer.compute > 0 else []
    peers = [f"all-gather with {p.member} {p.error or f'{p.seconds:.3f} s'}" for p in answer.peers]
    return "; ".join([what, *compute, *peers])


def _say(state: State, answer: Checked) -> list[Action]:
    return outbox.say(state, answer, f"check round {answer.round}: {answer.result}")


def took_too_long(state: State, now: float) -> list[Action]:
    checking = state.checking
    assert checking is not None
    checking.give_up_at = None
    order = checking.order
    error = "the template or launcher did not answer"
    return answered(state, Checked(order.order, order.round, "no answer", error, elapsed=order.seconds + SLACK))


def trainer_ended(state: State) -> list[Action]:
    """The probe went with it."""
    checking = state.checking
    if checking is None or checking.answer is not None:
        return []
    order = checking.order
    return answered(state, Checked(order.order, order.round, "interrupted", "the template or launcher ended"))
