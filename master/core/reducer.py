"""The master's core as a whole: two tables, from event to handler and from message to handler, and what is looked at
after each.

`step(state, event, now)` changes the state and returns the actions. A handler notes what happened; what follows from it
for the job as a whole (who holds which rank index, whether a generation may form) is looked at once at the end of the
step, and only where something has changed. So a crash is stopped in the step that reports it, and the next generation
forms in the step in which the last survivor is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outrider.master.core import (
    autoscaling,
    bad_nodes,
    checks,
    collecting,
    data_notes,
    editing,
    ending,
    failed_pods,
    gangs,
    generations,
    giving_up,
    handing_over,
    hangs,
    held,
    invariants,
    judging,
    keeping,
    lagging,
    lapsing,
    log_rules,
    looking,
    membership,
    metrics,
    moves,
    network,
    node_rules,
    nodes,
    observing,
    orders,
    orphans,
    outcomes,
    owning,
    pods,
    progress,
    rebuilding,
    recovery,
    refusals,
    replacing,
    reservations,
    restoring,
    scaling,
    silence,
    spares,
    standing,
    status,
    strangers,
    unreached,
    watching,
)
from outrider.master.core.actions import Action, CreatePod, DeletePod, SaveStatus, Send, WriteReplicas
from outrider.master.core.events import (
    ActionFailed,
    Asked,
    Began,
    CreateRefused,
    Event,
    LeaseLapsed,
    LeaseRegained,
    MemberProbed,
    NodeSeen,
    OwnerEnded,
    OwnerSized,
    PodGone,
    PodSeen,
    PodsListed,
    RestartAsked,
    RestartRefused,
    ScaleAsked,
    ScalingAsked,
    SidecarDisconnected,
    SidecarSaid,
    SpecChanged,
    Stalled,
    StatusSaved,
    StopAsked,
    TurnTold,
    Woke,
)
from outrider.master.core.member import Member
from outrider.master.core.state import COMMITTING, ENDED, GATHERING, RUNNING, STOPPING, State
from outrider.master.core.wording import counted
from outrider.master.core.world import OVER
from outrider.wire.ids import MemberId
from outrider.wire.messages import (
    Acknowledged,
    Answer,
    Checked,
    DataSaid,
    Exited,
    Fetched,
    Hello,
    Leaving,
    LineMatched,
    PatternDropped,
    Ping,
    Pong,
    Probed,
    Ready,
    Remembered,
    Report,
    Saved,
    Started,
    StartFailed,
    StateOffered,
    StateSaved,
    Stepped,
    Stopped,
    TrainerExited,
    TrainerLost,
)

SAVE_AGAIN = 1.0
CHECKED_UP_TO = 64
"""Members up to which a running service checks its invariants at every step."""


# -- the core's interface -----------------------------------------------------------------------------------------
def step(state: State, event: Event, now: float) -> list[Action]:
    """Takes one event; returns what is to be done, in order."""
    return change(state, lambda: HANDLERS[type(event)](state, event), now)


def change(state: State, make: Callable[[], None], now: float) -> list[Action]:
    """The same of a change that comes from outside the tables."""
    state.now = now
    state.actions = []
    if state.stage != ENDED:
        make()
        _look(state)
    actions, state.actions = state.actions, []
    return observing.filtered(state, actions)


def next_deadline(state: State) -> float | None:
    """When `Woke` is due at the latest."""
    return None if state.stage == ENDED else state.deadlines.next()


def describe(state: State) -> str:
    """The state in a few words; each change of them is a transition in the journal."""
    return f"{state.stage} {state.generation} {state.phase}"


def check(state: State) -> None:
    """Raises where an invariant does not hold. A walk over all members, so a large job is spared it."""
    if len(state.members) <= CHECKED_UP_TO:
        invariants.check(state)


# -- at the end of a step -----------------------------------------------------------------------------------------
def _look(state: State) -> None:
    """What follows from what has changed; each part may change something for the next."""
    if state.checkpoint_step is not None and not state.lapsed:
        scaling.at_checkpoint(state)
    if state.world is not None and state.world.resume.verdict == OVER and state.spec.require_resume:
        recovery.started_over(state, state.world)
    if state.stirred:
        state.stirred = False
        lapsing.advance(state) if state.lapsed else _advance(state)
    if not state.lapsed:
        status.flush(state)


def _advance(state: State) -> None:
    pods.strangers_done(state)
    if state.is_over:
        ending.advance(state)
        return
    rebuilding.advance(state)
    orphans.advance(state)
    strangers.advance(state)
    hangs.advance(state)
    editing.hold(state)
    if observing.is_world_over(state):
        observing.forget_world(state)
        _leave_world(state)
    if observing.is_over(state):
        ending.fail(state, 1, "No member is left, and none is made anew: the job is only observed.")
        return
    if state.unstaffed:
        state.unstaffed = False
        spares.staff(state)
        scaling.dismiss(state)
        owning.resize(state)
    if state.stage == STOPPING and state.world is not None and not state.world.waiting and judging.settle(state):
        _leave_world(state)
    outcomes.advance(state)
    checks.advance(state)
    owning.hold(state)
    if state.stage == GATHERING:
        generations.try_form(state)
    if state.stage == RUNNING and state.unsized:
        state.unsized = False
        scaling.consider(state)
    scaling.after_save(state)
    ending.after_save(state)
    ending.advance(state)


def _leave_world(state: State) -> None:
    generations.leave(state)
    editing.hold(state)
    spares.staff(state)
    scaling.dismiss(state)
    owning.resize(state)


# -- events -------------------------------------------------------------------------------------------------------
def _began(state: State, event: Began) -> None:
    state.is_left = event.is_left
    goes_on = handing_over.begin(state, event.term, event.spec, event.unix_time, event.saved)
    if goes_on:
        autoscaling.begin(state)
        metrics.begin(state)
    if goes_on or event.is_left:
        rebuilding.begin(state)
        autoscaling.look_at_schedule(state)
    else:
        text = f"Job {event.spec.name} begins; it wants {counted(event.spec.replicas, 'member')}."
        state.announce("JobBegan", text)
        autoscaling.first(state)
        editing.tell_remarks(state, ())
        owning.begin(state)
    standing.note_staffing(state)
    status.mark(state)


def _said(state: State, event: SidecarSaid) -> None:
    message = event.message
    if isinstance(message, Hello):
        membership.greet(state, event.session, message)
        return
    member_id = state.sessions.get(event.session)
    member = state.members.get(member_id) if member_id is not None else None
    if member is None:
        return
    silence.heard(state, member)
    unreached.bound(state, member)
    MESSAGES[type(message)](state, member, message)


def _status_saved(state: State, event: StatusSaved) -> None:
    state.saved_version = max(state.saved_version, event.version)
    reservations.saved(state, event.version)
    world = state.world
    is_saved = state.stage == COMMITTING and world is not None and state.saved_version >= world.version
    if is_saved and world is not None and not restoring.waits(state, world):
        generations.start(state)


def _action_failed(state: State, event: ActionFailed) -> None:
    action = event.action
    if isinstance(action, WriteReplicas):
        autoscaling.not_written(state)
    if isinstance(action, owning.ASKING):
        owning.failed(state, event.error)
    elif isinstance(action, SaveStatus):
        text = f"The status could not be saved: {event.error}. It is tried again in {SAVE_AGAIN:.0f} s."
        state.announce("StatusNotSaved", text, warning=True)
        state.deadlines.set(("save", ""), state.now + SAVE_AGAIN)
    elif isinstance(action, CreatePod):
        spares.creation_failed(state, action, event.error)
    elif isinstance(action, DeletePod):
        giving_up.deletion_failed(state, action, event.error, SAVE_AGAIN)
        failed_pods.deletion_failed(state, action)


def _edited(state: State, event: SpecChanged) -> None:
    editing.edited(state, event)
    failed_pods.trim(state)
    node_rules.edited(state)


def _keep_off_no_more(state: State, member_id: str) -> None:
    member = bad_nodes.forgive(state, member_id)
    if member is not None:
        giving_up.dismiss(state, member, f"{member.id} is made anew: it finds no room off the nodes that it avoids.")


def _save_again(state: State, _key: str) -> None:
    if state.saved_version < state.version:
        status.save_now(state, "The last status could not be saved.")
        if state.stage == COMMITTING and state.world is not None:
            state.world.version = state.version


def _delete_again(state: State, member_id: str) -> None:
    member = state.members.get(MemberId(member_id))
    if member is not None and member.deleting and member.uid is not None:
        reason = member.dismissed or f"{member.id} is deleted once more: it is still there."
        state.act(DeletePod(member.id, member.uid, giving_up.DELETE_GRACE, state.generation, reason))


def _woke(state: State, _event: Woke) -> None:
    for kind, key in state.deadlines.take_due(state.now):
        if state.lapsed and kind in lapsing.LATER:
            state.deadlines.set((kind, key), state.now + lapsing.AGAIN)
        else:
            DEADLINES[kind](state, key)


def _stalled(state: State, event: Stalled) -> None:
    watching.note_stall(state, event.seconds)
    silence.note_stall(state, event.seconds)


def _last_word(state: State, _key: str) -> None:
    standing.stir(state)


HANDLERS: dict[type, Callable[[State, Any], None]] = {
    Began: _began,
    SidecarSaid: _said,
    SidecarDisconnected: lambda state, event: membership.disconnected(state, event.session),
    PodSeen: pods.seen,
    PodGone: pods.gone,
    PodsListed: pods.listed,
    NodeSeen: nodes.seen,
    CreateRefused: refusals.refused,
    OwnerSized: editing.owner_sized,
    OwnerEnded: owning.ended,
    MemberProbed: lambda state, event: silence.own_probe(state, event.member, event.reachable),
    StatusSaved: _status_saved,
    ScaleAsked: lambda state, event: scaling.scale(state, event.replicas),
    ScalingAsked: lambda state, _event: autoscaling.resume(state),
    TurnTold: gangs.told,
    SpecChanged: _edited,
    RestartAsked: lambda state, event: scaling.restart(state, event.at_checkpoint),
    RestartRefused: lambda state, event: scaling.restart_refused(state, event.why),
    StopAsked: lambda state, event: ending.stop(state, event.reason, event.hard, event.within),
    Asked: lambda state, event: collecting.ask(state, event.request, event.what),
    ActionFailed: _action_failed,
    Woke: _woke,
    Stalled: _stalled,
    LeaseLapsed: lapsing.lapsed,
    LeaseRegained: lambda state, _event: lapsing.regained(state),
}


# -- messages -----------------------------------------------------------------------------------------------------
def _exited(state: State, member: Member, message: Exited) -> None:
    recovery.exited(state, member, message)
    network.ended(state, member)
    replacing.exited(state, member, message)


def _reported(state: State, member: Member, message: Report) -> None:
    progress.note_report(state, member, message)
    watching.note_report(state, member, message)
    membership.check_report(state, member, message)
    lagging.note_report(state, member, message)
    network.note_report(state, member, message)
    autoscaling.note_report(state, member, message)


def _pinged(state: State, member: Member, message: Ping) -> None:
    """It reaches none of its neighbours, and wants to know whether it is cut off."""
    if member.session is not None:
        reason = f"{member.id} asks whether it is heard."
        state.act(Send(member.session, member.id, Pong(message.number), state.generation, reason))


def _probed(state: State, member: Member, message: Probed) -> None:
    silence.probed(state, member, message)
    network.probed(state, member, message)


def _fetched(state: State, member: Member, message: Fetched) -> None:
    orders.acknowledge(state, member, message.order)
    restoring.fetched(state, member, message)
    keeping.fetched(state, member, message)


def _acknowledged(state: State, member: Member, message: Acknowledged) -> None:
    orders.acknowledge(state, member, message.order)
    if state.is_over:
        standing.stir(state)


MESSAGES: dict[type, Callable[[State, Member, Any], None]] = {
    Ready: membership.ready,
    Started: membership.started,
    StartFailed: membership.start_failed,
    Stopped: membership.stopped,
    Exited: _exited,
    Report: _reported,
    Stepped: progress.stepped,
    Saved: progress.saved,
    TrainerLost: recovery.trainer_lost,
    TrainerExited: recovery.trainer_exited,
    Leaving: scaling.leaving,
    Probed: _probed,
    Ping: _pinged,
    Answer: collecting.answered,
    Checked: checks.answered,
    LineMatched: log_rules.matched,
    PatternDropped: log_rules.dropped,
    DataSaid: data_notes.said,
    StateOffered: moves.offered,
    StateSaved: moves.saved,
    Remembered: keeping.remembered,
    Fetched: _fetched,
    Acknowledged: _acknowledged,
}


# -- deadlines ----------------------------------------------------------------------------------------------------
DEADLINES: dict[str, Callable[[State, str], None]] = {
    "order": orders.repeat,
    "hear": silence.listen,
    "replace": giving_up.consider,
    "unended": giving_up.unended,
    "stuck": giving_up.stuck,
    "unstarted": nodes.unstarted,
    "begin": lambda state, _key: held.look(state),
    "patience": pods.patience_over,
    "absent": pods.absent,
    "unreached": unreached.due,
    "alone": unreached.alone_soon,
    "failed pod": failed_pods.lingers,
    "no room": _keep_off_no_more,
    "confirm": membership.unconfirmed,
    "unready": membership.unready,
    "ticket": membership.renew_ticket,
    "start": recovery.start_overdue,
    "stop": generations.give_up_waiting,
    "hold": recovery.end_hold,
    "last word": _last_word,
    "resize": lambda state, _key: scaling.patience_over(state),
    "leave": scaling.leave_now,
    "move": moves.due,
    "saved state": moves.overdue,
    "fetch": restoring.overdue,
    "copied": keeping.overdue,
    "create": spares.create_due,
    "delete": _delete_again,
    "owner": lambda state, _key: owning.due(state),
    "room": lambda state, _key: autoscaling.room_due(state),
    "write": lambda state, _key: autoscaling.write_again(state),
    "schedule": lambda state, _key: autoscaling.follow_schedule(state),
    "unmeasured": lambda state, _key: metrics.due(state),
    "save": _save_again,
    "status": lambda state, _key: status.due(state),
    "collect": collecting.overdue,
    "check": lambda state, _key: checks.overdue(state),
    "hang": hangs.look,
    "look": looking.due,
    "conclude": hangs.conclude,
    "links": lambda state, _key: network.look(state),
    "rebuild": lambda state, _key: rebuilding.overdue(state),
    "finish": lambda state, _key: ending.overdue(state),
}
