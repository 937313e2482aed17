"""Tracks the template or launcher: which one is the trainer, what runs under it, and what its loss means.

Worker processes may be older than the sidecar: on each connection the hooks report what runs, which is compared with
what the master knows. A member has one trainer at a time. A launcher that only runs its command (`can_start` is false)
is replaced by the template that appears inside the command. Any other second one is refused, as both would fork the
same ranks.
"""

from __future__ import annotations

from outrider.sidecar.core import member_end, nodecheck, outbox, supervision
from outrider.sidecar.core.actions import Action, Announce, RefuseHook, SweepProcesses
from outrider.sidecar.core.events import HookConnected
from outrider.sidecar.core.state import Phase, State, Trainer, Work
from outrider.sidecar.core.transitions import move
from outrider.wire.ids import NO_GENERATION, Generation


def connected(state: State, event: HookConnected, now: float) -> list[Action]:
    if state.trainer is not None and state.trainer.pid != event.pid:
        return _another(state, event, now)
    known = state.trainer is not None
    state.trainer, state.met_trainer = _trainer_of(event), True
    state.lost = None
    awaited = state.unsure_until is not None or (not known and event.running > NO_GENERATION)
    state.unsure_until = None
    actions = _reconcile(state, event, now) if known else _adopt(state, event, now)
    if awaited:  # the last Hello did not report what runs, or Hello has waited for this
        actions += outbox.hello(state, now)
    return [*actions, *nodecheck.reconnected(state), *member_end.order_finish(state)]


def _trainer_of(event: HookConnected) -> Trainer:
    return Trainer(
        connection=event.connection,
        what=event.what,
        pid=event.pid,
        rung=event.rung,
        rung_reason=event.rung_reason,
        nproc=event.nproc,
        max_restarts=event.max_restarts,
        can_start=event.can_start,
    )


def _another(state: State, event: HookConnected, now: float) -> list[Action]:
    """Handles a connection of another process than the present trainer."""
    current = state.trainer
    assert current is not None
    if not event.can_start:
        state.launcher = _trainer_of(event)
        return []
    if not current.can_start and state.work is None:
        state.launcher, state.trainer = current, None
        return connected(state, event, now)
    why = (
        f"the {event.what} with pid {event.pid} is refused: a container has one trainer, which is the {current.what} "
        f"with pid {current.pid}"
    )
    return [Announce("SecondTrainer", why, severity="warning"), RefuseHook(event.connection, state.generation, why)]


def _adopt(state: State, event: HookConnected, now: float) -> list[Action]:
    """Handles the first connection of a trainer that this sidecar does not know."""
    line = Announce("TrainerConnected", f"{event.what} (pid {event.pid}), {event.rung}: {event.rung_reason}")
    if event.running > NO_GENERATION and event.can_start:
        return [line, *_take_over(state, event, now)]
    if event.can_start and state.phase is Phase.WAITING:
        move(state, "trainer came")
        return [line, *supervision.find_port(state, "the first generation needs a port")]
    return [line]


def _take_over(state: State, event: HookConnected, now: float) -> list[Action]:
    """Reattaches to worker processes that run already, as they are older than this sidecar; training continues."""
    reported_stopped, work = state.stopped, Work(event.running, pids=dict(event.workers))
    state.work = work
    state.highest = max(state.highest, event.running)
    state.port, state.port_at = 0, None
    move(state, "workers found")
    if event.running <= reported_stopped:
        state.stopped = NO_GENERATION  # that was wrong; it is stopped now, before anything else may start
        return supervision.stop_what_should_be_gone(state, reported_stopped, now)
    _doubt(state, work, tuple(range(event.nproc or len(event.workers))), event, now)
    reason = f"{len(event.workers)} worker processes of generation {event.running} run already: reattached"
    return [Announce("Reattached", reason, event.running), *outbox.begin_report(state, now)]


def _reconcile(state: State, event: HookConnected, now: float) -> list[Action]:
    """Compares what runs with the state, when the same trainer reconnects after its connection broke."""
    match state.phase:
        case Phase.FORKING if event.running == state.generation:
            return supervision.workers_started(state, event.running, dict(event.workers), now)
        case Phase.FORKING:
            return supervision.resend_start(state)
        case Phase.RUNNING if state.work is not None:
            _doubt(state, state.work, tuple(state.work.pids), event, now)
            return []
        case Phase.STOPPING:
            return supervision.order_stop(state, "the trainer's connection broke before it had answered the stop")
        case Phase.READY | Phase.WAITING if event.running > NO_GENERATION and event.can_start:
            return _take_over(state, event, now)
        case Phase.WAITING if event.can_start:
            move(state, "trainer came")
            return supervision.find_port(state, "the first generation needs a port")
    return []


def _doubt(state: State, work: Work, expected: tuple[int, ...], event: HookConnected, now: float) -> None:
    named = {rank for rank, _ in event.workers} if event.running == work.generation else set()
    work.doubt = tuple(rank for rank in expected if rank not in named and rank not in work.exits)
    work.doubt_until = now + supervision.REPLAY if work.doubt else None


def disconnected(state: State, connection: str, alive: bool, now: float) -> list[Action]:
    if state.launcher is not None and state.launcher.connection == connection:
        state.launcher = None if not alive else state.launcher
    trainer = state.trainer
    if trainer is None or trainer.connection != connection:
        return []
    trainer.connection = ""
    return [] if alive else ended(state, trainer.pid, now)


def ended(state: State, pid: int, now: float) -> list[Action]:
    """Handles the end of the trainer's process, with which its workers die: the member needs a new trainer."""
    if state.launcher is not None and state.launcher.pid == pid:
        state.launcher = None
    trainer = state.trainer
    if trainer is None or trainer.pid != pid:
        return []
    generation = state.generation
    reason = f"the {trainer.what} (pid {pid}) ended, and its worker processes with it"
    exits, spent = (state.work.ends(now), state.work.spent) if state.work else ((), None)
    sweep = SweepProcesses(generation, f"the {trainer.what} with pid {pid} ended and may have left processes", pid)
    state.trainer = None
    answers = [*_gone_with_it(state, generation, now), *nodecheck.trainer_ended(state)]
    if state.ending is not None and state.ending.exit_code is not None:
        return [sweep, *answers, *member_end.exit_now(state, f"the trainer has ended: {state.ending.reason}")]
    line = Announce("TrainerLost", reason, generation, "warning")
    if state.command_ended is not None:
        return [line, sweep, *answers]
    state.lost = (reason, generation, exits, spent)
    return [line, sweep, *outbox.lost(state, now), *answers]


def _gone_with_it(state: State, generation: Generation, now: float) -> list[Action]:
    """Answers a pending stop, and notes that the generation has ended."""
    stopping = state.stopping
    if state.work is not None:
        supervision.remember_gone(state, generation, 0, now)
    move(state, "trainer lost")
    state.port, state.port_at = 0, None
    actions: list[Action] = []
    for order in stopping.orders if stopping else []:
        actions += outbox.stopped(state, order, stopping.generation if stopping else generation, now)
    return actions
