"""The end of this member. The master or the platform orders it, or the command that owns the job is gone.

Told to go, a member says so and trains on: the master makes a replacement first and then says Finish. Where no word
comes it ends by itself, some seconds before it would be killed. The trainer ends before the sidecar, so that somebody
is there to say how it went.
"""

from __future__ import annotations

from outrider.sidecar.core import outbox
from outrider.sidecar.core.actions import Action, Announce, Exit, FinishTrainer, SweepProcesses
from outrider.sidecar.core.state import Ending, State
from outrider.wire.messages.generation import Acknowledged
from outrider.wire.messages.membership import Finish

LAST_SECONDS = 5.0
"""Before the grace has run out, a member that nobody told to finish ends itself."""
FINISH_PATIENCE = 90.0
"""Seconds a trainer has to end after Finish: longer than a save may take."""
TERMINATED = 143


def sigterm_received(state: State, grace: float, now: float) -> list[Action]:
    """An ordinary sidecar gets SIGTERM when its whole pod has to go. A native one gets it when the last container has
    ended or an init container has failed: nobody is left whose departure could be told (docs/adr/0026)."""
    if state.me is None or not state.me.is_native:
        return termination_asked(state, "SIGTERM", grace, now)
    return exit_now(state, "SIGTERM: nothing else of this pod runs any more, or its sidecar alone is started anew")


def termination_asked(state: State, reason: str, grace: float, now: float) -> list[Action]:
    """Holds the end back for as long as it may be, and tells the master."""
    if state.ending is None:
        state.ending = Ending(reason)
    ending = state.ending
    until = now + grace
    if ending.leave_at is not None and until >= ending.announced_grace_until:
        return []
    ending.announced_grace_until = until
    ending.leave_at = now + max(grace - LAST_SECONDS, grace / 2)
    why = f"this member was told to go ({reason}) and has {grace:g} s"
    line = Announce("Leaving", why, state.generation, "warning")
    return [line, *outbox.leaving(state, now)]


def leave(state: State, now: float) -> list[Action]:
    """The grace is nearly over and no word has come."""
    assert state.ending is not None
    state.ending.leave_at = None
    return end_trainer(state, TERMINATED, state.ending.reason, now)


def finish(state: State, order: Finish, now: float) -> list[Action]:
    acknowledged = outbox.say(state, Acknowledged(order.order), order.reason)
    if state.ending is not None and state.ending.exit_code is not None:
        return acknowledged
    return [*acknowledged, *end_trainer(state, order.exit_code, order.reason, now, order.last_words)]


def refused_for_good(state: State, reason: str, now: float) -> list[Action]:
    """The master will never serve this member: it ends, with what runs in it."""
    return end_trainer(state, 1, reason, now)


def end_trainer(state: State, exit_code: int, reason: str, now: float, last_words: str = "") -> list[Action]:
    """Orders the trainer to end with this code; the sidecar ends after it. One that has not come yet is waited for: its
    container may be on its way, and without a sidecar it would wait for ever."""
    ending = state.ending or Ending(reason)
    ending.last_words = last_words
    ending.reason, ending.exit_code, ending.leave_at = reason, exit_code, None
    ending.give_up_at = now + FINISH_PATIENCE
    state.ending = ending
    line = Announce("Finishing", reason, state.generation)
    if state.trainer is None and state.met_trainer:
        return [line, *give_up(state, f"no trainer is left: {reason}")]
    return [line, *order_finish(state)]


def order_finish(state: State) -> list[Action]:
    """Orders it of whoever is connected; one that reconnects is ordered again."""
    ending, trainer = state.ending, state.trainer
    if ending is None or ending.exit_code is None or trainer is None or not trainer.connection:
        return []
    words = ending.last_words
    return [FinishTrainer(trainer.connection, ending.exit_code, state.generation, ending.reason, words)]


def overdue(state: State) -> list[Action]:
    """`FINISH_PATIENCE` is over."""
    assert state.ending is not None
    return give_up(
        state,
        "the trainer did not end in time" if state.met_trainer else f"no trainer has come: {state.ending.reason}",
    )


def give_up(state: State, reason: str) -> list[Action]:
    """Whatever is left of the member is killed, and the sidecar ends."""
    sweep = SweepProcesses(state.generation, reason)
    return [sweep, *exit_now(state, reason)]


def exit_now(state: State, reason: str) -> list[Action]:
    state.over = True
    told = state.ending.exit_code if state.ending is not None else None
    code = told if told and state.me is not None and state.me.ends_as_trainer else 0
    return [Exit(code, state.generation, reason)]


def lifeline_lost(state: State) -> list[Action]:
    reason = "the command that owns this job is gone, so nothing of it may stay"
    return [Announce("LifelineLost", reason, state.generation, "warning"), *give_up(state, reason)]
