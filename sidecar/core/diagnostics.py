"""Queries to the worker processes, from the master or from a program in the pod (`sidecar.ask`).

Order numbers of the pod's queries are negative, a master's never are; so each answer shows where it must go.
"""

from __future__ import annotations

from outrider.sidecar.core import outbox
from outrider.sidecar.core.actions import Action, AnswerHere, CollectFromWorkers
from outrider.sidecar.core.state import State
from outrider.wire.ids import OrderId
from outrider.wire.messages.diagnostics import Answer

NO_TRAINER = '{"error": "no template or launcher is connected to the sidecar"}'
LOST = '{"error": "the template or launcher disconnected before it had answered"}'


def requested(state: State, order: int, what: str) -> list[Action]:
    """Collects what was requested, or answers with an error at once if no template or launcher is connected."""
    if state.trainer is None or not state.trainer.connection:
        return answered(state, order, NO_TRAINER, "no template or launcher is connected")
    reason = f"{'a program in the pod' if order < 0 else 'the master'} requests {what}"
    return [CollectFromWorkers(state.trainer.connection, order, what, state.generation, reason)]


def answered(state: State, order: int, body: str, reason: str = "the requested diagnostics") -> list[Action]:
    if order < 0:
        return [AnswerHere(order, body, state.generation, reason)]
    return outbox.say(state, Answer(OrderId(order), body), reason)
