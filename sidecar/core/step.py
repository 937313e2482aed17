"""`step`, the sidecar's entry point: one event in, actions out.

It uses no clock and no socket: `now` comes with each event, and `next_deadline` returns when `Woke` is due.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from outrider.sidecar.core import (
    checkpoints,
    data_position,
    deserted,
    hands_off,
    log_lines,
    master_link,
    member_end,
    nodecheck,
    outbox,
    peer_health,
    peer_links,
    planned_save,
    self_fencing,
    supervision,
    trainer,
    unsupervised,
)
from outrider.sidecar.core import diagnostics as core_diagnostics
from outrider.sidecar.core.actions import (
    Action,
    Announce,
    CollectFromWorkers,
    FetchCopies,
    FindPort,
    KeepWord,
    ProbeNeighbour,
    ProbePeer,
    ReadPages,
    SampleUsage,
    Send,
    StartWorkers,
)
from outrider.sidecar.core.events import (
    ActionFailed,
    AskedHere,
    Began,
    Collected,
    CommandEnded,
    CopiesFetched,
    DataTold,
    Event,
    FromHooks,
    HookConnected,
    HookDisconnected,
    HookSaid,
    LifelineLost,
    MasterConnected,
    MasterDisconnected,
    MasterSaid,
    NeighbourLeft,
    NeighbourProbed,
    PagesRead,
    PatternMet,
    PeerProbed,
    PortFound,
    SigtermReceived,
    Stalled,
    TerminationAsked,
    TrainerEnded,
    UsageSampled,
    Woke,
    WordKept,
    WorkerExited,
    WorkersNotStarted,
    WorkersStarted,
    WorkersStopped,
)
from outrider.sidecar.core.state import State
from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.checkpoints import (
    Fetch,
    Fetched,
    Kept,
    Remembered,
    Saved,
    SaveState,
    StateOffered,
    StateSaved,
)
from outrider.wire.messages.diagnostics import Ask
from outrider.wire.messages.directions import FromMaster
from outrider.wire.messages.generation import Start, Stop
from outrider.wire.messages.links import Pong, Probe, Probed
from outrider.wire.messages.log_lines import PatternDropped
from outrider.wire.messages.membership import Finish, Refused, Welcome
from outrider.wire.messages.node_check import Check, Checked

UNSURE = 10.0
"""Seconds without a hook after which a member that an earlier sidecar served is assumed to have no worker."""


def step(state: State, event: Event, now: float) -> list[Action]:
    """Changes the state by one event and returns the resulting actions."""
    if state.over:
        return []
    actions = _taken(state, event, now)
    actions += hands_off.look(state, now)
    deserted.look(state, now)
    return actions


def _taken(state: State, event: Event, now: float) -> list[Action]:
    if state.alone.is_final and (alone := unsupervised.step(state, event, now)) is not None:
        return alone
    match event:
        case Began():
            return _began(state, event, now)
        case MasterSaid(message):
            peer_health.heard(state, now)
            first = unsupervised.master_spoke(state)
            return [*first, *_master_said(state, message, now)]
        case MasterConnected():
            peer_health.heard(state, now)
            return master_link.connected(state, now)
        case MasterDisconnected():
            return master_link.disconnected(state, now)
        case HookConnected():
            return trainer.connected(state, event, now)
        case HookSaid(message):
            return _hook_said(state, message)
        case HookDisconnected(connection, alive):
            return trainer.disconnected(state, connection, alive, now)
        case TrainerEnded(pid):
            return trainer.ended(state, pid, now)
        case TerminationAsked(reason, grace):
            return member_end.termination_asked(state, reason, grace, now)
        case SigtermReceived(grace):
            return member_end.sigterm_received(state, grace, now)
        case LifelineLost():
            return member_end.lifeline_lost(state)
        case ActionFailed(action, error):
            return _action_failed(state, action, error, now)
        case WordKept(word):
            return unsupervised.word_kept(state, word, now)
        case Woke():
            return _woke(state, now)
        case Stalled(seconds):
            peer_health.paused(state, seconds, now)
            return []
        case _:
            return _trainer_said(state, event, now)


TrainerEvent = (
    WorkersStarted
    | WorkersNotStarted
    | WorkerExited
    | WorkersStopped
    | CommandEnded
    | PagesRead
    | UsageSampled
    | PortFound
    | PeerProbed
    | NeighbourProbed
    | NeighbourLeft
    | AskedHere
    | Collected
    | PatternMet
    | DataTold
    | CopiesFetched
)


def _trainer_said(state: State, event: TrainerEvent, now: float) -> list[Action]:
    match event:
        case WorkersStarted(generation, pids):
            return supervision.workers_started(state, generation, dict(enumerate(pids)), now)
        case WorkersNotStarted(generation, error):
            return supervision.workers_not_started(state, generation, error)
        case WorkerExited(generation, exit, spent):
            return supervision.worker_exited(state, generation, exit, now, spent)
        case WorkersStopped(generation, killed):
            return supervision.workers_stopped(state, generation, killed, now)
        case CommandEnded(code, reason):
            state.command_ended = (code, reason)
            return [Announce("CommandEnded", reason), *outbox.command_ended(state)]
        case PagesRead() as pages:
            return supervision.pages_read(state, pages, now)
        case UsageSampled(cpu, memory_mib, gpus):
            state.cpu, state.memory_mib, state.gpus = cpu, memory_mib, gpus
            return outbox.report(state, now) if state.link.report_due else []
        case PortFound(port, copies):
            return supervision.port_found(state, port, copies)
        case PeerProbed(order, member, reachable):
            return _probed(state, order, member, reachable)
        case NeighbourProbed(neighbour, reachable, round_trip, lost):
            peer_links.note(state, neighbour, round_trip if reachable else None, lost, now)
            return peer_health.probed(state, neighbour, reachable, now)
        case NeighbourLeft(address, port):
            return peer_health.left(state, (address, port))
        case Collected(order, body):
            return core_diagnostics.answered(state, order, body)
        case AskedHere(order, what):
            return core_diagnostics.requested(state, order, what)
        case PatternMet(match, at):
            return log_lines.matched(state, match, at, now)
        case DataTold():
            return data_position.reported(state, event)
        case CopiesFetched(came, copies):
            return checkpoints.fetched(state, came, copies)
        case _:
            assert_never(event)


def _hook_said(state: State, message: FromHooks) -> list[Action]:
    match message:
        case Saved():
            return checkpoints.saved(state, message)
        case Remembered():
            return checkpoints.remembered(state, message)
        case StateOffered():
            return planned_save.offered(state, message)
        case StateSaved():
            return planned_save.written(state, message)
        case PatternDropped():
            return log_lines.dropped(state, message)
        case Checked():
            return nodecheck.answered(state, message)
        case _:
            assert_never(message)


def _began(state: State, event: Began, now: float) -> list[Action]:
    state.me = event
    state.unsure_until = now + UNSURE if event.restarted else None
    role = f"rank index {event.rank_index}" if event.rank_index is not None else "a spare"
    line = Announce("Began", f"the sidecar of {event.member} of job {event.job}, {role}, has started")
    return [line, *unsupervised.began(state, event, now)]


def _master_said(state: State, message: FromMaster, now: float) -> list[Action]:
    if isinstance(message, Welcome):
        return master_link.welcomed(state, message, now)
    if isinstance(message, Refused):
        return master_link.refused(state, message, now)
    if not state.link.welcomed:
        return []  # orders count only after Welcome, and never from a master of a lower term
    match message:
        case Start():
            return supervision.start(state, message, now)
        case Stop():
            return supervision.stop(state, message, now)
        case Finish():
            return member_end.finish(state, message, now)
        case Probe(order, member, address, port, seconds):
            reason = f"the master requests a probe of {member}"
            return [ProbePeer(order, member, address, port, seconds, state.generation, reason)]
        case Ask(order, what):
            return core_diagnostics.requested(state, order, what)
        case SaveState():
            return planned_save.requested(state, message)
        case Check():
            return nodecheck.check(state, message, now)
        case Kept():
            return checkpoints.kept(state, message)
        case Fetch():
            return checkpoints.fetch(state, message)
        case Pong():
            return []  # its arrival was noted as a sign of life
        case _:
            assert_never(message)


def _probed(state: State, order: int, member: MemberId, reachable: bool) -> list[Action]:
    can = "can" if reachable else "cannot"
    return outbox.say(state, Probed(OrderId(order), member, reachable), f"{member} {can} be reached from here")


def _action_failed(state: State, action: Action, error: str, now: float) -> list[Action]:
    """Handles a failed action. Orders to a trainer are repeated when it has reconnected."""
    match action:
        case Send():
            return []  # the link is down or about to be: all that matters is sent again after the next Welcome
        case FindPort():
            return supervision.port_not_found(state, error, now)
        case SampleUsage():
            return outbox.report(state, now) if state.link.report_due else []
        case StartWorkers():
            return supervision.workers_not_started(state, action.generation, error) if _is_ours(error) else []
        case ProbePeer():
            return _probed(state, action.order, action.member, False)
        case ProbeNeighbour(neighbour):
            peer_links.note(state, neighbour, None, 0, now)
            return peer_health.probed(state, neighbour, False, now)
        case FetchCopies(order):
            return checkpoints.fetched(state, Fetched(order.order, order.generation, order.step, error=error))
        case CollectFromWorkers(_, order) if order < 0:
            return core_diagnostics.answered(state, order, core_diagnostics.LOST, error)
        case ReadPages():
            return []  # no page yet: the next read comes by itself
        case _:
            if isinstance(action, KeepWord):
                unsupervised.not_kept(state, action, now)
            kind = type(action).__name__
            return [Announce("ActionFailed", f"{kind} failed: {error}", action.generation, "warning")]


def _is_ours(error: str) -> bool:
    """Whether an order to a trainer failed for another reason than its connection, which is restored by itself."""
    return not error.startswith("ConnectionError")


# -- time
#
def next_deadline(state: State) -> float | None:
    """The next time at which `Woke` is due; None: none."""
    if state.over:
        return None
    return min((moment for moment, _ in _deadlines(state)), default=None)


def _woke(state: State, now: float) -> list[Action]:
    actions: list[Action] = []
    due = [act for moment, act in _deadlines(state) if moment <= now]
    for place, act in enumerate(due):
        if place == 0 or _is_due(state, act, now):  # another deadline of the same moment may have cancelled it
            actions += act(state, now)
    return actions


def _is_due(state: State, act: Callable[[State, float], list[Action]], now: float) -> bool:
    return not state.over and any(each is act and moment <= now for moment, each in _deadlines(state))


Deadline = tuple[float, Callable[[State, float], list[Action]]]


def _deadlines(state: State) -> list[Deadline]:
    work, stopping, end, check = state.work, state.stopping, state.ending, state.checking
    if state.alone.is_final:
        return [] if state.link.hello_at is None else [(state.link.hello_at, outbox.hello)]
    found: list[tuple[float | None, Callable[[State, float], list[Action]]]] = [
        (state.link.hello_at, outbox.hello),
        (state.link.report_at, outbox.begin_report),
        (state.unsure_until, _sure),
        (state.port_at, _port_again),
        (unsupervised.reminds_at(state), unsupervised.remind),
        (unsupervised.decides_at(state), unsupervised.decide),
        (self_fencing.due(state), self_fencing.look),
        (deserted.due(state), deserted.finish),
        (work.start_by if work and not state.hands_off else None, supervision.start_took_too_long),
        (work.doubt_until if work else None, supervision.doubt_ended),
        (work.poll_at if work else None, _poll),
        (stopping.give_up_at if stopping and not state.hands_off else None, _stop_took_too_long),
        (check.give_up_at if check else None, nodecheck.took_too_long),
        (end.leave_at if end else None, member_end.leave),
        (end.give_up_at if end else None, _end_is_overdue),
    ]  # fmt: skip
    return [(moment, act) for moment, act in found if moment is not None]


def _stop_took_too_long(state: State, now: float) -> list[Action]:
    return supervision.stop_took_too_long(state)


def _end_is_overdue(state: State, now: float) -> list[Action]:
    return member_end.overdue(state)


def _sure(state: State, now: float) -> list[Action]:
    state.unsure_until = None
    return []


def _port_again(state: State, now: float) -> list[Action]:
    return supervision.find_port(state, "the last search failed")


def _poll(state: State, now: float) -> list[Action]:
    assert state.work is not None
    state.work.poll_at = now + supervision.pause_between_looks(state.work, now)
    return [ReadPages(state.generation, "waiting for the first new step")]


def describe(state: State) -> str:
    """A short description of the state; the journal records each change of it as a transition."""
    playing = "" if state.work is None else f" {state.generation}"
    if state.alone.is_final:
        return f"unsupervised {'linked' if state.link.up else 'alone'}"
    link_word = "welcomed" if state.link.welcomed else "linked" if state.link.up else "alone"
    return f"{state.phase.name.lower()}{playing} {link_word}{' ending' if state.ending else ''}"
