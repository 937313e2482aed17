"""Planned moves in this member: the script can save its state, it is asked to, it has done so.

Who offers it is told to every master that welcomes this member. What became of an order is told once; where that is
lost, the master asks again, and the hooks answer again without saving twice.
"""

from __future__ import annotations

from outrider.sidecar.core import outbox
from outrider.sidecar.core.actions import Action, SaveWorkersState
from outrider.sidecar.core.state import State
from outrider.wire.messages.checkpoints import SaveState, StateOffered, StateSaved


def offered(state: State, said: StateOffered) -> list[Action]:
    if state.work is None or state.work.generation != said.generation:
        return []
    state.work.offers = said.names
    return again(state)


def again(state: State) -> list[Action]:
    """After a Welcome too."""
    work = state.work
    if work is None or work.offers is None:
        return []
    reason = f"the script can save its state: {', '.join(work.offers)}"
    return outbox.say(state, StateOffered(work.generation, work.offers), reason, work.generation)


def asked(state: State, order: SaveState) -> list[Action]:
    work, trainer = state.work, state.trainer
    if work is None or work.generation != order.generation or not (order.signal or work.offers is not None):
        return written(state, StateSaved(order.order, order.generation, error="that generation does not run here"))
    if trainer is None or not trainer.connection:
        return []  # it reconnects, and the order is repeated
    reason = order.reason or "the master asks for the script's state to be saved"
    what = (order.order, order.seconds, order.last)
    return [SaveWorkersState(trainer.connection, *what, order.generation, reason, order.signal)]


def written(state: State, answer: StateSaved) -> list[Action]:
    how = f"was not saved: {answer.error}" if answer.error else f"of step {answer.step} was saved"
    if not (answer.error or answer.path):
        how = "was asked for by a signal"
    return outbox.say(state, answer, f"the script's state {how}", answer.generation)
