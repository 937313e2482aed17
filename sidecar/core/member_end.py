"""Ends this member when the master or the platform orders it, or the command that owns the job is gone.

After SIGTERM a member reports that and continues training: the master first creates a replacement and then sends
Finish. Without Finish the member ends by itself, some seconds before it would be killed. The trainer ends before the
sidecar, so that the sidecar can report how it ended.
"""

from __future__ import annotations

from outrider.sidecar.core import outbox
from outrider.sidecar.core.actions import Action, Announce, Exit, FinishTrainer, SweepProcesses
from outrider.sidecar.core.state import Ending, State
from outrider.wire.messages.generation import Acknowledged
from outrider.wire.messages.membership import Finish

LAST_SECONDS = 5.0
"""Seconds before the end of the grace period at which a member without Finish ends by itself."""
FINISH_PATIENCE = 90.0
"""Seconds a trainer has to end after Finish: longer than a save may take."""
TERMINATED = 143


def sigterm_received(state: State, grace: float, now: float) -> list[Action]:
    """An ordinary sidecar gets SIGTERM when its whole pod must end. A native one gets it after the last container has
    ended or an init container has failed: no trainer is left whose departure could be reported (docs/adr/0026)."""
    if state.me is None or not state.me.is_native:
        return termination_asked(state, "SIGTERM", grace, now)
    return exit_now(state, "SIGTERM: no other container of this pod runs any more, or only its sidecar is restarted")


def termination_asked(state: State, reason: str, grace: float, now: float) -> list[Action]:
    """Holds the end back for as long as the grace allows, and reports it to the master."""
    if state.ending is None:
        state.ending = Ending(reason)
    ending = state.ending
    until = now + grace
    if ending.leave_at is not None and until >= ending.announced_grace_until:
        return []
    ending.announced_grace_until = until
    ending.leave_at = now + max(grace - LAST_SECONDS, grace / 2)
    why = f"this member must end within {grace:g} s ({reason})"
    line = Announce("Leaving", why, state.generation, "warning")
    return [line, *outbox.leaving(state, now)]


def leave(state: State, now: float) -> list[Action]:
    """Ends the trainer, as the grace is nearly over and the master has sent no Finish."""
    assert state.ending is not None
    state.ending.leave_at = None
    return end_trainer(state, TERMINATED, state.ending.reason, now)


def finish(state: State, order: Finish, now: float) -> list[Action]:
    acknowledged = outbox.say(state, Acknowledged(order.order), order.reason)
    if state.ending is not None and state.ending.exit_code is not None:
        return acknowledged
    return [*acknowledged, *end_trainer(state, order.exit_code, order.reason, now, order.last_words)]


def refused_for_good(state: State, reason: str, now: float) -> list[Action]:
    """Ends this member and its processes, as the master will never serve it."""
    return end_trainer(state, 1, reason, now)


def end_trainer(state: State, exit_code: int, reason: str, now: float, last_words: str = "") -> list[Action]:
    """Orders the trainer to end with this code; the sidecar ends after it.

    If the trainer has not connected yet, the sidecar waits for it: its container may be starting, and without a sidecar
    it would wait for ever.
    """
    ending = state.ending or Ending(reason)
    ending.last_words = last_words
    ending.reason, ending.exit_code, ending.leave_at = reason, exit_code, None
    ending.give_up_at = now + FINISH_PATIENCE
    state.ending = ending
    line = Announce("Finishing", reason, state.generation)
    if state.trainer is None and state.met_trainer:
        return [line, *give_up(state, f"the trainer has ended already: {reason}")]
    return [line, *order_finish(state)]


def order_finish(state: State) -> list[Action]:
    """Sends the order to the connected trainer, and again to one that reconnects."""
    ending, trainer = state.ending, state.trainer
    if ending is None or ending.exit_code is None or trainer is None or not trainer.connection:
        return []
    words = ending.last_words
    return [FinishTrainer(trainer.connection, ending.exit_code, state.generation, ending.reason, words)]


def overdue(state: State) -> list[Action]:
    """Gives up after `FINISH_PATIENCE`."""
    assert state.ending is not None
    return give_up(
        state,
        f"the trainer did not end within {FINISH_PATIENCE:g} s of the order"
        if state.met_trainer
        else f"no trainer has connected: {state.ending.reason}",
    )


def give_up(state: State, reason: str) -> list[Action]:
    """Kills the member's remaining processes and ends the sidecar."""
    sweep = SweepProcesses(state.generation, reason)
    return [sweep, *exit_now(state, reason)]


def exit_now(state: State, reason: str) -> list[Action]:
    state.over = True
    ordered = state.ending.exit_code if state.ending is not None else None
    code = ordered if ordered and state.me is not None and state.me.ends_as_trainer else 0
    return [Exit(code, state.generation, reason)]


def lifeline_lost(state: State) -> list[Action]:
    reason = "the command that owns this job is gone, so all its processes are ended"
    return [Announce("LifelineLost", reason, state.generation, "warning"), *give_up(state, reason)]
