"""Questions to the worker processes, of the master or of somebody in the pod (`sidecar.ask`).

Orders of the latter are negative, a master's never are: what comes back says by its order who is to be answered.
"""

from __future__ import annotations

from outrider.sidecar.core import outbox
from outrider.sidecar.core.actions import Action, AnswerHere, CollectFromWorkers
from outrider.sidecar.core.state import State
from outrider.wire.ids import OrderId
from outrider.wire.messages.diagnostics import Answer

NOBODY = '{"error": "there is no template or launcher to ask"}'
LOST = '{"error": "the template or launcher went while it was asked"}'


def asked(state: State, order: int, what: str) -> list[Action]:
    """Whoever asks is answered, at once where there is nobody who could say it."""
    if state.trainer is None or not state.trainer.connection:
        return answered(state, order, NOBODY, "there is nobody to ask")
    reason = f"{'somebody in the pod' if order < 0 else 'the master'} asks for {what}"
    return [CollectFromWorkers(state.trainer.connection, order, what, state.generation, reason)]


def answered(state: State, order: int, body: str, reason: str = "what was asked for was collected") -> list[Action]:
    if order < 0:
        return [AnswerHere(order, body, state.generation, reason)]
    return outbox.say(state, Answer(OrderId(order), body), reason)
