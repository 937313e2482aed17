"""A pod whose sidecar never reached a master: its command waits, or runs for good as without Outrider.

It runs unsupervised only if the webhook has allowed that (`Began.alone_after`): the command forms its own process
group, and no generation of its job was ever formed. Any message of any master ends that option. This is recorded before
anything else is sent to a master, so that a restarted sidecar knows it too; a restarted one that finds no record waits.
Rules:

* The decision is final: it is recorded before the trainer gets its order, and the first record counts (the hooks write
the same file if no sidecar starts at all). * An unsupervised member obeys no master, reports so in each Hello, and
sends nothing else.

This state also holds without a trainer: a new trainer runs its command at once.
"""

from __future__ import annotations

from outrider.sidecar.core import member_end, outbox
from outrider.sidecar.core.actions import Action, Announce, KeepWord, RunAlone, TellTrainer
from outrider.sidecar.core.events import (
    Began,
    Event,
    HookConnected,
    HookDisconnected,
    LifelineLost,
    MasterConnected,
    MasterDisconnected,
    MasterSaid,
    SigtermReceived,
    TrainerEnded,
    Woke,
    WordKept,
)
from outrider.sidecar.core.state import Phase, State, Trainer
from outrider.sidecar.core.transitions import move
from outrider.wire.messages.membership import Refused

ALONE, SERVED = "alone", "served"
EVERY = 60.0
"""Seconds between two lines in the trainer's log about what the command waits for."""
HELLO_EVERY = 30.0
"""Seconds between two Hellos of a member that runs unsupervised."""


def began(state: State, event: Began, now: float) -> list[Action]:
    alone = state.alone
    alone.since, alone.remind_at = now, now + EVERY
    if event.word == ALONE:
        alone.trainer = event.alone_trainer
        return _run_unsupervised(state, "an earlier sidecar, or the hooks, had decided so", now)
    if event.alone_after is not None and not event.word and not event.restarted:
        alone.at = now + event.alone_after
    return []


# -- while it waits
#
def master_spoke(state: State) -> list[Action]:
    """Records, before the master's message has any effect, that the command now always waits for a master."""
    alone = state.alone
    if alone.at is None:
        return []
    alone.at = None
    return [KeepWord(SERVED, 0, state.generation, "a master has sent a message to this member")]


def master_lost(state: State, now: float) -> None:
    state.alone.since, state.alone.remind_at = now, now + EVERY


def reminds_at(state: State) -> float | None:
    is_there = state.trainer is not None and bool(state.trainer.connection)
    is_waiting = is_there and state.work is None and not state.link.welcomed and state.ending is None
    return state.alone.remind_at if is_waiting else None


def remind(state: State, now: float) -> list[Action]:
    """Writes one line into the trainer's log on why its command does not start."""
    state.alone.remind_at = now + EVERY
    assert state.trainer is not None
    return [TellTrainer(state.trainer.connection, state.generation, f"{_why(state, now)}; {_what_then(state, now)}")]


def _why(state: State, now: float) -> str:
    waited, link = f"{now - state.alone.since:.0f} s", state.link
    if link.refusal:
        return link.refusal
    where = state.me.endpoint if state.me is not None and state.me.endpoint else "its endpoint"
    if link.up:
        return f"the master at {where} has not answered for {waited}"
    return (
        f"no master was reached at {where} for {waited} (check that a master is running, and that "
        f"NetworkPolicies and the pod's dnsPolicy let this pod connect to its port)"
    )


def _what_then(state: State, now: float) -> str:
    at = state.alone.at
    return "the command waits" if at is None else f"the command runs without Outrider in {max(at - now, 0.0):.0f} s"


def decides_at(state: State) -> float | None:
    """When the command starts unsupervised; None also while no command could start."""
    trainer = state.trainer
    is_there = trainer is not None and trainer.can_start and bool(trainer.connection)
    return state.alone.at if is_there and state.phase is Phase.READY and state.ending is None else None


def decide(state: State, now: float) -> list[Action]:
    """Records that the command runs unsupervised, as no master came in time."""
    assert state.trainer is not None
    state.alone.at = None
    return [KeepWord(ALONE, state.trainer.pid, state.generation, _why(state, now))]


def word_kept(state: State, word: str, now: float) -> list[Action]:
    if word == ALONE:
        return _run_unsupervised(state, _why(state, now), now)
    state.alone.at = None
    return []


def not_kept(state: State, action: KeepWord, now: float) -> None:
    """Tries again later if `ALONE` could not be recorded; an unrecorded `SERVED` holds for this process at least."""
    if action.word == ALONE:
        state.alone.at = now + EVERY


# -- for good
#
def _run_unsupervised(state: State, why: str, now: float) -> list[Action]:
    alone, link = state.alone, state.link
    alone.is_final, alone.at, alone.remind_at = True, None, None
    link.welcomed = link.report_due = False
    link.report_at = state.unsure_until = None
    text = f"the command runs unsupervised from now on: {why}"
    line = Announce("Unsupervised", text, severity="warning")
    orders: list[Action] = []
    for each in (state.trainer, state.launcher):
        orders += _order_to_run(state, each, why)
    return [line, *orders, *outbox.hello(state, now)]


def _order_to_run(state: State, trainer: Trainer | None, why: str) -> list[Action]:
    if trainer is None or not trainer.connection:
        return []
    if trainer.can_start:
        state.alone.trainer = trainer.pid
    return [RunAlone(trainer.connection, state.generation, why)]


def step(state: State, event: Event, now: float) -> list[Action] | None:
    """Handles one event in a pod that runs unsupervised; None if the event is handled as in any other pod."""
    match event:
        case HookConnected():
            return _hook_connected(state, event)
        case HookDisconnected(connection, alive):
            is_its = state.trainer is not None and state.trainer.connection == connection
            return [] if alive or not is_its else _trainer_ended(state)
        case TrainerEnded(pid):
            return _trainer_ended(state) if pid == state.alone.trainer else []
        case SigtermReceived():
            return member_end.exit_now(state, "SIGTERM while the command runs unsupervised")
        case LifelineLost():
            return member_end.lifeline_lost(state)
        case MasterConnected() | MasterDisconnected() | MasterSaid() | Woke():
            return _linked(state, event, now)
        case WordKept():
            return []
    return None


def _linked(state: State, event: Event, now: float) -> list[Action]:
    link = state.link
    match event:
        case MasterConnected():
            link.up = True
            return outbox.hello(state, now)
        case MasterDisconnected():
            link.up, link.hello_at = False, None
        case MasterSaid(message):
            wait = message.retry_after if isinstance(message, Refused) else 0.0
            link.hello_at = now + max(wait, HELLO_EVERY)
        case Woke() if link.hello_at is not None and link.hello_at <= now:
            return outbox.hello(state, now)
    return []


def _hook_connected(state: State, event: HookConnected) -> list[Action]:
    """Orders a new trainer to run: its container was restarted, or its command has started another Python."""
    trainer = Trainer(
        event.connection, event.what, event.pid, event.rung, event.rung_reason, event.nproc, event.max_restarts,
        event.can_start,
    )  # fmt: skip
    why = "this pod runs unsupervised"
    if not event.can_start:
        state.launcher = trainer
        return _order_to_run(state, trainer, why)
    if state.phase is Phase.WAITING:
        state.trainer = trainer
        move(state, "trainer came")
    state.trainer = trainer
    return [KeepWord(ALONE, event.pid, state.generation, why), *_order_to_run(state, trainer, why)]


def _trainer_ended(state: State) -> list[Action]:
    """Ends the sidecar with the command, as without Outrider the pod ends; a native sidecar stays, as the trainer's
    container may be restarted."""
    state.alone.trainer, state.trainer, state.port, state.port_at = 0, None, 0, None
    move(state, "trainer lost")
    if state.me is not None and state.me.is_native:
        return []
    return member_end.exit_now(state, "the command that ran unsupervised has ended")
