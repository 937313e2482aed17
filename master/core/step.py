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

from outrider.master.core.actions import Action, CreatePod, DeletePod, EndJob, SaveStatus, Send, WriteReplicas
from outrider.master.core.checkpoints import data_position, memory_tier, planned_save, restore
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
from outrider.master.core.faults import log_rules, node_exclusion, node_rules, pod_replacement, recovery
from outrider.master.core.faults import verdict as faults_verdict
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import (
    lifecycle,
    observe_only,
    orders,
    past_lease,
    progress,
    readiness,
    reservations,
)
from outrider.master.core.hangs import detector as hangs_detector
from outrider.master.core.hangs import diagnostics as hangs_diagnostics
from outrider.master.core.hangs import looks as hangs_looks
from outrider.master.core.hangs import progress_watch
from outrider.master.core.membership import connections as membership_connections
from outrider.master.core.membership import (
    failover,
    failure_detector,
    key_mismatch,
    pod_deletion,
    prior_success,
    sidecar_exit,
    unreached,
)
from outrider.master.core.network import partition
from outrider.master.core.nodecheck import rounds as nodecheck_rounds
from outrider.master.core.placement import admission as placement_admission
from outrider.master.core.placement import (
    create_refused,
    failed_pods,
    nodes,
    owner_scaling,
    pod_blocked,
    pod_status,
    spec_update,
)
from outrider.master.core.placement import replicas as placement_replicas
from outrider.master.core.scaling import autoscaler, log_metrics
from outrider.master.core.scaling import resize as scaling_resize
from outrider.master.core.state.generation import OVER
from outrider.master.core.state.job import COMMITTING, ENDED, GATHERING, RUNNING, STOPPING, State
from outrider.master.core.state.member import Member
from outrider.master.core.status import document as status_document
from outrider.master.core.status import invariants
from outrider.master.core.status import persist as status_persist
from outrider.master.core.stragglers import remedy as stragglers_remedy
from outrider.master.core.text import counted
from outrider.wire.ids import MemberId
from outrider.wire.messages.checkpoints import Fetched, Remembered, Saved, StateOffered, StateSaved
from outrider.wire.messages.data_position import DataSaid
from outrider.wire.messages.diagnostics import Answer
from outrider.wire.messages.generation import Acknowledged, Exited, Ready, Started, StartFailed, Stepped, Stopped
from outrider.wire.messages.links import Ping, Pong, Probed
from outrider.wire.messages.log_lines import LineMatched, PatternDropped
from outrider.wire.messages.membership import Hello, Leaving, TrainerExited, TrainerLost
from outrider.wire.messages.node_check import Checked
from outrider.wire.messages.report import Report

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
    return observe_only.filtered(state, actions)


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
        scaling_resize.at_checkpoint(state)
    if state.world is not None and state.world.resume.verdict == OVER and state.spec.require_resume:
        recovery.started_over(state, state.world)
    if state.stirred:
        state.stirred = False
        past_lease.advance(state) if state.lapsed else _advance(state)
    status_document.flush(state)
    if state.stage == ENDED:
        state.act(EndJob(state.exit_code or 0, state.generation, state.message))


def _advance(state: State) -> None:
    pod_status.strangers_done(state)
    if state.is_over:
        generation_job_end.advance(state)
        return
    failover.advance(state)
    sidecar_exit.advance(state)
    key_mismatch.advance(state)
    hangs_detector.advance(state)
    spec_update.hold(state)
    if observe_only.is_world_over(state):
        observe_only.forget_world(state)
        _leave_world(state)
    if observe_only.is_over(state):
        generation_job_end.fail(state, 1, "No member is left, and none is made anew: the job is only observed.")
        return
    if state.unstaffed:
        state.unstaffed = False
        placement_replicas.staff(state)
        scaling_resize.dismiss(state)
        owner_scaling.resize(state)
    if state.stage == STOPPING and state.world is not None and not state.world.waiting and faults_verdict.settle(state):
        _leave_world(state)
    prior_success.advance(state)
    nodecheck_rounds.advance(state)
    owner_scaling.hold(state)
    if state.stage == GATHERING:
        lifecycle.try_form(state)
    if state.stage == RUNNING and state.unsized:
        state.unsized = False
        scaling_resize.consider(state)
    scaling_resize.after_save(state)
    generation_job_end.after_save(state)
    generation_job_end.advance(state)


def _leave_world(state: State) -> None:
    lifecycle.leave(state)
    spec_update.hold(state)
    placement_replicas.staff(state)
    scaling_resize.dismiss(state)
    owner_scaling.resize(state)


# -- events -------------------------------------------------------------------------------------------------------
def _began(state: State, event: Began) -> None:
    state.is_left = event.is_left
    goes_on = status_persist.begin(state, event.term, event.spec, event.unix_time, event.saved)
    if goes_on:
        autoscaler.begin(state)
        log_metrics.begin(state)
    if goes_on or event.is_left:
        failover.begin(state)
        autoscaler.look_at_schedule(state)
    else:
        text = f"Job {event.spec.name} begins; it wants {counted(event.spec.replicas, 'member')}."
        state.announce("JobBegan", text)
        autoscaler.first(state)
        spec_update.tell_remarks(state, ())
        owner_scaling.begin(state)
    readiness.note_staffing(state)
    state.mark_status()


def _said(state: State, event: SidecarSaid) -> None:
    message = event.message
    if isinstance(message, Hello):
        membership_connections.greet(state, event.session, message)
        return
    member_id = state.sessions.get(event.session)
    member = state.members.get(member_id) if member_id is not None else None
    if member is None:
        return
    failure_detector.heard(state, member)
    unreached.bound(state, member)
    MESSAGES[type(message)](state, member, message)


def _status_saved(state: State, event: StatusSaved) -> None:
    state.saved_version = max(state.saved_version, event.version)
    reservations.saved(state, event.version)
    world = state.world
    is_saved = state.stage == COMMITTING and world is not None and state.saved_version >= world.version
    if is_saved and world is not None and not restore.waits(state, world):
        lifecycle.start(state)


def _action_failed(state: State, event: ActionFailed) -> None:
    action = event.action
    if isinstance(action, WriteReplicas):
        autoscaler.not_written(state)
    if isinstance(action, owner_scaling.ASKING):
        owner_scaling.failed(state, event.error)
    elif isinstance(action, SaveStatus):
        text = f"The status could not be saved: {event.error}. It is tried again in {SAVE_AGAIN:.0f} s."
        state.announce("StatusNotSaved", text, warning=True)
        state.deadlines.set(("save", ""), state.now + SAVE_AGAIN)
    elif isinstance(action, CreatePod):
        placement_replicas.creation_failed(state, action, event.error)
    elif isinstance(action, DeletePod):
        pod_deletion.deletion_failed(state, action, event.error, SAVE_AGAIN)
        failed_pods.deletion_failed(state, action)


def _edited(state: State, event: SpecChanged) -> None:
    spec_update.edited(state, event)
    failed_pods.trim(state)
    node_rules.edited(state)


def _keep_off_no_more(state: State, member_id: str) -> None:
    member = node_exclusion.forgive(state, member_id)
    if member is not None:
        pod_deletion.dismiss(state, member, f"{member.id} is made anew: it finds no room off the nodes that it avoids.")


def _save_again(state: State, _key: str) -> None:
    if state.saved_version < state.version:
        state.save_status("The last status could not be saved.")
        if state.stage == COMMITTING and state.world is not None:
            state.world.version = state.version


def _delete_again(state: State, member_id: str) -> None:
    member = state.members.get(MemberId(member_id))
    if member is not None and member.deleting and member.uid is not None:
        reason = member.dismissed or f"{member.id} is deleted once more: it is still there."
        state.act(DeletePod(member.id, member.uid, pod_deletion.DELETE_GRACE, state.generation, reason))


def _woke(state: State, _event: Woke) -> None:
    for kind, key in state.deadlines.take_due(state.now):
        if state.lapsed and kind in past_lease.LATER:
            state.deadlines.set((kind, key), state.now + past_lease.AGAIN)
        else:
            DEADLINES[kind](state, key)


def _stalled(state: State, event: Stalled) -> None:
    progress_watch.note_stall(state, event.seconds)
    failure_detector.note_stall(state, event.seconds)


def _last_word(state: State, _key: str) -> None:
    readiness.stir(state)


HANDLERS: dict[type, Callable[[State, Any], None]] = {
    Began: _began,
    SidecarSaid: _said,
    SidecarDisconnected: lambda state, event: membership_connections.disconnected(state, event.session),
    PodSeen: pod_status.seen,
    PodGone: pod_status.gone,
    PodsListed: pod_status.listed,
    NodeSeen: nodes.seen,
    CreateRefused: create_refused.refused,
    OwnerSized: spec_update.owner_sized,
    OwnerEnded: owner_scaling.ended,
    MemberProbed: lambda state, event: failure_detector.own_probe(state, event.member, event.reachable),
    StatusSaved: _status_saved,
    ScaleAsked: lambda state, event: scaling_resize.scale(state, event.replicas),
    ScalingAsked: lambda state, _event: autoscaler.resume(state),
    TurnTold: placement_admission.told,
    SpecChanged: _edited,
    RestartAsked: lambda state, event: scaling_resize.restart(state, event.at_checkpoint),
    RestartRefused: lambda state, event: scaling_resize.restart_refused(state, event.why),
    StopAsked: lambda state, event: generation_job_end.stop(state, event.reason, event.hard, event.within),
    Asked: lambda state, event: hangs_diagnostics.ask(state, event.request, event.what),
    ActionFailed: _action_failed,
    Woke: _woke,
    Stalled: _stalled,
    LeaseLapsed: past_lease.lapsed,
    LeaseRegained: lambda state, _event: past_lease.regained(state),
}


# -- messages -----------------------------------------------------------------------------------------------------
def _exited(state: State, member: Member, message: Exited) -> None:
    recovery.exited(state, member, message)
    partition.ended(state, member)
    pod_replacement.exited(state, member, message)


def _reported(state: State, member: Member, message: Report) -> None:
    progress.note_report(state, member, message)
    progress_watch.note_report(state, member, message)
    membership_connections.check_report(state, member, message)
    stragglers_remedy.note_report(state, member, message)
    partition.note_report(state, member, message)
    autoscaler.note_report(state, member, message)


def _pinged(state: State, member: Member, message: Ping) -> None:
    """It reaches none of its neighbours, and wants to know whether it is cut off."""
    if member.session is not None:
        reason = f"{member.id} asks whether it is heard."
        state.act(Send(member.session, member.id, Pong(message.number), state.generation, reason))


def _probed(state: State, member: Member, message: Probed) -> None:
    failure_detector.probed(state, member, message)
    partition.probed(state, member, message)


def _fetched(state: State, member: Member, message: Fetched) -> None:
    orders.acknowledge(state, member, message.order)
    restore.fetched(state, member, message)
    memory_tier.fetched(state, member, message)


def _acknowledged(state: State, member: Member, message: Acknowledged) -> None:
    orders.acknowledge(state, member, message.order)
    if state.is_over:
        readiness.stir(state)


MESSAGES: dict[type, Callable[[State, Member, Any], None]] = {
    Ready: membership_connections.ready,
    Started: membership_connections.started,
    StartFailed: membership_connections.start_failed,
    Stopped: membership_connections.stopped,
    Exited: _exited,
    Report: _reported,
    Stepped: progress.stepped,
    Saved: progress.saved,
    TrainerLost: recovery.trainer_lost,
    TrainerExited: recovery.trainer_exited,
    Leaving: scaling_resize.leaving,
    Probed: _probed,
    Ping: _pinged,
    Answer: hangs_diagnostics.answered,
    Checked: nodecheck_rounds.answered,
    LineMatched: log_rules.matched,
    PatternDropped: log_rules.dropped,
    DataSaid: data_position.said,
    StateOffered: planned_save.offered,
    StateSaved: planned_save.saved,
    Remembered: memory_tier.remembered,
    Fetched: _fetched,
    Acknowledged: _acknowledged,
}


# -- deadlines ----------------------------------------------------------------------------------------------------
DEADLINES: dict[str, Callable[[State, str], None]] = {
    "order": orders.repeat,
    "hear": failure_detector.listen,
    "replace": pod_deletion.consider,
    "unended": pod_deletion.unended,
    "stuck": pod_deletion.stuck,
    "unstarted": nodes.unstarted,
    "begin": lambda state, _key: pod_blocked.look(state),
    "patience": pod_status.patience_over,
    "absent": pod_status.absent,
    "unreached": unreached.due,
    "alone": unreached.alone_soon,
    "failed pod": failed_pods.lingers,
    "no room": _keep_off_no_more,
    "confirm": membership_connections.unconfirmed,
    "unready": membership_connections.unready,
    "ticket": membership_connections.renew_ticket,
    "start": recovery.start_overdue,
    "stop": lifecycle.give_up_waiting,
    "hold": recovery.end_hold,
    "last word": _last_word,
    "resize": lambda state, _key: scaling_resize.patience_over(state),
    "leave": scaling_resize.leave_now,
    "move": planned_save.due,
    "saved state": planned_save.overdue,
    "fetch": restore.overdue,
    "copied": memory_tier.overdue,
    "create": placement_replicas.create_due,
    "delete": _delete_again,
    "owner": lambda state, _key: owner_scaling.due(state),
    "room": lambda state, _key: autoscaler.room_due(state),
    "write": lambda state, _key: autoscaler.write_again(state),
    "schedule": lambda state, _key: autoscaler.follow_schedule(state),
    "unmeasured": lambda state, _key: log_metrics.due(state),
    "save": _save_again,
    "status": lambda state, _key: status_document.due(state),
    "collect": hangs_diagnostics.overdue,
    "check": lambda state, _key: nodecheck_rounds.overdue(state),
    "hang": hangs_detector.look,
    "look": hangs_looks.due,
    "conclude": hangs_detector.conclude,
    "links": lambda state, _key: partition.look(state),
    "rebuild": lambda state, _key: failover.overdue(state),
    "finish": lambda state, _key: generation_job_end.overdue(state),
}
