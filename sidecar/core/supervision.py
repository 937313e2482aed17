"""Starts, watches and stops one generation in this member, and makes sure it is gone before the next.

The rules: worker processes of two generations never run at once. A Start of a stopped generation, or of a lower one
than the highest known, is refused, whichever master orders it. A repeated order is answered but not carried out again.
The end of a process that was not stopped is reported at once.
"""

from __future__ import annotations

from outrider.sidecar.core import checkpoints, outbox, peer_health
from outrider.sidecar.core.actions import Action, Announce, FindPort, StartWorkers, StopWorkers, SweepProcesses
from outrider.sidecar.core.events import PagesRead
from outrider.sidecar.core.state import LogLines, Phase, State, Stopping, Work
from outrider.sidecar.core.transitions import move
from outrider.wire.ids import NO_ORDER, Generation, OrderId
from outrider.wire.messages.checkpoints import Copy
from outrider.wire.messages.generation import Start, StartFailed, Stop, WorkerExit
from outrider.wire.messages.report import Spent

START_PATIENCE = 60.0
"""Seconds the template or launcher has to start the processes; a fork takes 0.1 s, a relaunch (T1) a few seconds."""
STOP_SLACK = 10.0
"""Seconds beyond all graces after which a template or launcher that does not answer a stop is killed itself."""
POLL = 0.05
"""Seconds between reads of the pages until the first new step, which ends the measured lost time."""
LONG_INIT = 30.0
"""Seconds after the start from which the pages are read less often (`POLL_LONG`): a compile or a data set to load."""
POLL_LONG = 0.5
REPLAY = 1.0
"""Seconds a reconnected hook has to report the ends of processes that it did not list."""
FIND_AGAIN = 1.0
MOST_WINDOWS = 64
"""Most windows of steps that are kept for the next report."""


# -- start
#
def start(state: State, order: Start, now: float) -> list[Action]:
    """Carries out a Start, answers a repeated one, or refuses it with the reason."""
    if state.work is not None and state.work.generation == order.generation:
        state.work.start_order = order.order
        return outbox.started(state)  # empty while they are being forked: the answer follows then
    refusal = why_not(state, order)
    if refusal:
        return _refuse(state, order.order, order.generation, refusal)
    state.highest = order.generation
    state.not_started, state.isolated = None, ""
    state.work = Work(order.generation, order, order.order, start_by=now + START_PATIENCE)
    move(state, "start ordered")
    state.lines, state.data_notes = LogLines(), ()
    state.checking = None  # a measurement that is still running is of no use
    state.port = 0  # a port that was offered once is not offered again
    peer_health.neighbours_changed(state, order.neighbours, now)
    return [
        _rendezvous_line(order), *checkpoints.stop_fetching(state), *checkpoints.begins(state, order),
        *_order_start(state),
    ]  # fmt: skip


def why_not(state: State, order: Start) -> str:
    generation = order.generation
    if generation < state.highest:
        return f"generation {generation} is older than {state.highest}, which this member knows"
    if state.not_started and state.not_started[0] == generation:
        return state.not_started[1]
    if generation <= state.stopped:
        return f"generation {generation} was stopped here"
    if state.ending is not None:
        return f"this member is ending: {state.ending.reason}"
    if state.work is not None:
        return f"worker processes of generation {state.work.generation} have not ended yet"
    if state.phase is not Phase.READY:
        return "no template or launcher is connected that can start worker processes"
    if state.trainer is not None and order.nproc != _nproc(state):
        return f"the master ordered {order.nproc} worker processes, but this member runs {_nproc(state)}"
    return ""


def _nproc(state: State) -> int:
    assert state.me is not None
    return (state.trainer.nproc if state.trainer else None) or state.me.nproc


def _refuse(state: State, order: OrderId, generation: Generation, why: str) -> list[Action]:
    return outbox.say(state, StartFailed(order, generation, why), why, generation)


def _order_start(state: State) -> list[Action]:
    work, trainer = state.work, state.trainer
    if work is None or work.start is None or trainer is None or not trainer.connection:
        return []
    reason = work.start.reason or f"generation {work.generation} starts"
    return [StartWorkers(trainer.connection, work.start, work.generation, reason)]


def _rendezvous_line(start: Start) -> Announce:
    """The log line at the start of each generation, in torchrun's terms."""
    local = list(range(start.nproc))
    detail = (
        ("restart_count", str(start.restart_count)),
        ("master_addr", start.master_addr),
        ("master_port", str(start.master_port)),
        ("group_rank", str(start.group_rank)),
        ("group_world_size", str(start.group_world_size)),
        ("local_ranks", str(local)),
        ("global_ranks", str([start.first_rank + rank for rank in local])),
        ("world_size", str(start.world_size)),
    )
    return Announce("GenerationStarted", f"generation {start.generation} starts", start.generation, detail=detail)


def workers_started(state: State, generation: Generation, pids: dict[int, int], now: float) -> list[Action]:
    """Takes the worker processes' start; `pids` is by local rank."""
    work = state.work
    if work is None or work.generation != generation or state.phase is not Phase.FORKING:
        return []
    work.pids |= pids
    work.start_by, work.started_at, work.poll_at = None, now, now + POLL
    move(state, "started")
    return [*outbox.started(state), *_settle_ended(state, work, now)]


def workers_not_started(state: State, generation: Generation, error: str) -> list[Action]:
    work = state.work
    if work is None or work.generation != generation or state.phase is not Phase.FORKING:
        return []
    state.not_started = (generation, error)
    refusal = _refuse(state, work.start_order, generation, error)
    state.work, state.stopped = None, generation
    move(state, "not started")
    warning = Announce("StartFailed", f"generation {generation} could not be started: {error}", generation, "warning")
    return [warning, *refusal, *find_port(state, "the next generation needs a port")]


def start_took_too_long(state: State, now: float) -> list[Action]:
    """Cancels a Start that was not answered in time by a stop, so that it has no effect later."""
    work = state.work
    assert work is not None
    work.start_by = None
    why = f"the template or launcher did not start generation {work.generation} within {START_PATIENCE:g} s"
    state.not_started = (work.generation, why)
    refusal = _refuse(state, work.start_order, work.generation, why)
    return [*refusal, *begin_stop(state, Stop(NO_ORDER, work.generation, reason=why), now)]


# -- while it runs
#
def worker_exited(
    state: State, generation: Generation, exit: WorkerExit, now: float, spent: Spent | None = None
) -> list[Action]:
    work = state.work or _found_ended(state, generation, now)
    if work is None or work.generation != generation or exit.local_rank in work.exits:
        return []
    work.exits[exit.local_rank], work.heard_at[exit.local_rank] = exit, now
    work.note_spent(spent, now)
    work.pids.setdefault(exit.local_rank, exit.pid)
    work.doubt = tuple(rank for rank in work.doubt if rank != exit.local_rank)
    if state.phase is Phase.STOPPING and exit.code == 0:
        return []
    severity = "normal" if exit.code == 0 else "warning"
    line = Announce("WorkerExited", outbox.how_it_ended(exit), generation, severity)
    if state.phase is Phase.FORKING:  # reported after Started: before that the master does not know the process
        return [line]
    return [line, *outbox.exited(state, (exit,), now), *_end_if_finished(state)]


def _found_ended(state: State, generation: Generation, now: float) -> Work | None:
    """The generation whose processes all ended before this sidecar started; it learns of it only by their ends."""
    if state.phase is not Phase.READY or generation <= state.stopped or generation < state.highest:
        return None
    state.highest = generation
    state.port, state.port_at = 0, None
    state.work = Work(generation, doubt=tuple(range(_nproc(state))), doubt_until=now + REPLAY)
    move(state, "workers found")
    return state.work


def _settle_ended(state: State, work: Work, now: float) -> list[Action]:
    """Reports the ends of processes that ended before Started was sent."""
    return [*outbox.exited(state, work.ends(now), now), *_end_if_finished(state)]


def _end_if_finished(state: State) -> list[Action]:
    work = state.work
    if work is None or state.phase is not Phase.RUNNING or not work.finished:
        return []
    move(state, "all ended well")
    work.poll_at = None
    reason = f"all worker processes of generation {work.generation} ended with 0"
    return [Announce("WorkersFinished", reason, work.generation)]


def doubt_ended(state: State, now: float) -> list[Action]:
    """Reports processes as ended that a reconnected hook neither listed nor reported: they ended unobserved."""
    work = state.work
    assert work is not None
    doubted, work.doubt, work.doubt_until = work.doubt, (), None
    actions: list[Action] = []
    for rank in doubted:
        message = "it ended while the sidecar was not running"
        ended = WorkerExit(rank, work.pids.get(rank, 0), None, error_message=message)
        actions += worker_exited(state, work.generation, ended, now)
    return actions


def pages_read(state: State, pages: PagesRead, now: float) -> list[Action]:
    """Stores the ranks' progress, and reports the first step beyond all earlier ones at once."""
    work, ranks = state.work, pages.ranks
    if work is None or work.generation != pages.generation:
        return []
    work.ranks = ranks
    work.note_spent(pages.spent, now)
    work.own = (*work.own, *pages.own)[-MOST_WINDOWS:]
    if work.start is None or work.stepped is not None or len(ranks) < work.start.nproc:
        return []
    best = max(ranks, key=lambda rank: rank.step)
    if best.step <= work.start.high_step or any(rank.phase == "init" for rank in ranks):
        return []
    work.stepped = (best.step, now - best.step_age, max(rank.base for rank in ranks))
    work.poll_at = None
    return outbox.stepped(state, now)


def pause_between_looks(work: Work, now: float) -> float:
    return POLL if now - work.started_at < LONG_INIT else POLL_LONG


# -- stop
#
def stop(state: State, order: Stop, now: float) -> list[Action]:
    """Carries out a Stop, merges it into a pending one, or answers that no process is left to stop."""
    if state.unsure_until is not None:
        return []  # the hooks have not reported yet what runs here; the master repeats the order
    state.highest = max(state.highest, order.generation)
    if state.work is None or state.work.generation > order.generation:
        answer = outbox.stopped(state, order.order, order.generation, now)
        if state.work is not None:
            return answer
        state.stopped = max(state.stopped, order.generation)
        # after a Stop the master counts a member as ready only when it reports Ready again
        return [*answer, *find_port(state, "the next generation needs a port")]
    return begin_stop(state, order, now)


def begin_stop(state: State, order: Stop, now: float) -> list[Action]:
    pending, work = state.stopping, state.work
    assert work is not None
    orders = [] if pending is None else pending.orders
    if order.order and order.order not in orders:
        orders.append(order.order)
    same = pending is not None and pending.generation >= order.generation and order.grace >= pending.grace
    if same:
        return []
    longest = order.save_grace + max(order.grace, order.handler_grace) + STOP_SLACK
    graces = (order.grace, order.handler_grace, order.save_grace)
    state.stopping = Stopping(order.generation, *graces, orders, now + longest)
    if state.phase is not Phase.STOPPING:
        move(state, "stop ordered")
    work.poll_at = work.start_by = work.doubt_until = None
    reason = order.reason or f"generation {order.generation} is over"
    return [Announce("GenerationStopping", reason, order.generation), *order_stop(state, reason)]


def stop_what_should_be_gone(state: State, generation: Generation, now: float) -> list[Action]:
    why = f"worker processes of generation {state.generation} run, although {generation} was stopped here"
    return begin_stop(state, Stop(NO_ORDER, generation, reason=why), now)


def order_stop(state: State, reason: str) -> list[Action]:
    stopping, trainer = state.stopping, state.trainer
    if stopping is None or trainer is None or not trainer.connection:
        return []
    graces = (stopping.grace, stopping.handler_grace, stopping.save_grace)
    return [StopWorkers(trainer.connection, stopping.generation, *graces, reason)]


def workers_stopped(state: State, generation: Generation, killed: int, now: float) -> list[Action]:
    stopping = state.stopping
    if stopping is None or generation < stopping.generation:
        return []
    remember_gone(state, stopping.generation, killed, now)
    move(state, "stopped")
    answers: list[Action] = []
    for order in stopping.orders:
        answers += outbox.stopped(state, order, stopping.generation, now)
    return [*answers, *find_port(state, "the next generation needs a port")]


def remember_gone(state: State, generation: Generation, killed: int, now: float) -> None:
    """Notes that all processes of this generation are gone, for whatever reason."""
    assert state.work is not None
    best = max(state.work.ranks, key=lambda rank: rank.step, default=None)
    state.stopped_step = best.step if best else 0
    state.stopped_at = now - best.step_age if best else now
    state.stopped_killed = killed
    state.stopped_spent = state.work.spent
    state.stopped = max(state.stopped, generation)
    state.work = state.stopping = None


def stop_took_too_long(state: State) -> list[Action]:
    """Kills a template or launcher that does not answer, with its processes, so that its container restarts."""
    stopping, trainer = state.stopping, state.trainer
    assert stopping is not None
    stopping.give_up_at += STOP_SLACK
    pid = trainer.pid if trainer else 0
    why = f"the trainer did not answer the order to stop generation {stopping.generation}, so it is killed"
    return [
        Announce("StopUnanswered", why, stopping.generation, "warning"),
        SweepProcesses(stopping.generation, why, pid),
    ]


# -- the port
#
def find_port(state: State, reason: str) -> list[Action]:
    if state.phase is not Phase.READY:
        return []
    state.port, state.port_at = 0, None
    return [FindPort(state.generation, reason)]


def port_found(state: State, port: int, copies: tuple[Copy, ...] = ()) -> list[Action]:
    if state.phase is not Phase.READY or state.port:
        return []
    state.port, state.port_at, state.copies = port, None, copies
    return outbox.ready(state)


def port_not_found(state: State, error: str, now: float) -> list[Action]:
    state.port_at = now + FIND_AGAIN
    text = f"no free port was found (retry in {FIND_AGAIN:g} s): {error}"
    return [Announce("NoFreePort", text, severity="warning")]


def resend_start(state: State) -> list[Action]:
    return _order_start(state)
