"""Planned saves in this member: the script's offer, the master's order, the result.

The offer is sent to every master that welcomes this member. The result of an order is sent once; if it is lost, the
master repeats the order, and the hooks answer again without saving twice.
"""

from __future__ import annotations

from outrider.sidecar.core import outbox
from outrider.sidecar.core.actions import Action, SaveWorkersState
from outrider.sidecar.core.state import State
from outrider.wire.messages.checkpoints import SaveState, StateOffered, StateSaved


def offered(state: State, offer: StateOffered) -> list[Action]:
    if state.work is None or state.work.generation != offer.generation:
        return []
    state.work.offers = offer.names
    return again(state)


def again(state: State) -> list[Action]:
    """Sends the script's offer, also after a Welcome."""
    work = state.work
    if work is None or work.offers is None:
        return []
    reason = f"the script can save its state: {', '.join(work.offers)}"
    return outbox.say(state, StateOffered(work.generation, work.offers), reason, work.generation)


def requested(state: State, order: SaveState) -> list[Action]:
    work, trainer = state.work, state.trainer
    if work is None or work.generation != order.generation or not (order.signal or work.offers is not None):
        return written(state, StateSaved(order.order, order.generation, error="that generation does not run here"))
    if trainer is None or not trainer.connection:
        return []  # the trainer reconnects, and the master repeats the order
    reason = order.reason or "the master requests that the script saves its state"
    what = (order.order, order.seconds, order.last)
    return [SaveWorkersState(trainer.connection, *what, order.generation, reason, order.signal)]


def written(state: State, answer: StateSaved) -> list[Action]:
    how = f"was not saved: {answer.error}" if answer.error else f"of step {answer.step} was saved"
    if not (answer.error or answer.path):
        how = "was requested by a signal"
    return outbox.say(state, answer, f"the script's state {how}", answer.generation)
