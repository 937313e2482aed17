"""The handler of each event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outrider.master.core.actions import CreatePod, DeletePod, SaveStatus, WriteReplicas
from outrider.master.core.checkpoints import restore, save_before_end
from outrider.master.core.events import (
    ActionFailed,
    Asked,
    Began,
    CreateRejected,
    LeaseLost,
    LeaseRegained,
    MemberProbed,
    NodeSeen,
    OwnerEnded,
    OwnerSized,
    PodGone,
    PodSeen,
    PodsListed,
    RestartRejected,
    RestartRequested,
    ScaleRequested,
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
from outrider.master.core.faults import node_rules
from outrider.master.core.generation import readiness, reservations
from outrider.master.core.handlers import occurrences as handlers_occurrences
from outrider.master.core.handlers.deadlines import DEADLINES, SAVE_AGAIN
from outrider.master.core.handlers.messages import MESSAGES
from outrider.master.core.hangs import diagnostics as hangs_diagnostics
from outrider.master.core.hangs import progress_watch
from outrider.master.core.membership import connections as membership_connections
from outrider.master.core.membership import (
    failover,
    failure_detector,
    past_lease,
    pod_deletion,
    unreached,
)
from outrider.master.core.nodecheck import rounds as nodecheck_rounds
from outrider.master.core.placement import admission as placement_admission
from outrider.master.core.placement import (
    create_refused,
    failed_pods,
    nodes,
    owner_scaling,
    pod_status,
    spec_update,
)
from outrider.master.core.placement import replicas as placement_replicas
from outrider.master.core.scaling import autoscaler, log_metrics
from outrider.master.core.scaling import resize as scaling_resize
from outrider.master.core.state.job import COMMITTING, State
from outrider.master.core.status import persist as status_persist
from outrider.master.core.text import requested
from outrider.wire.messages.membership import Hello


def _began(state: State, event: Began) -> None:
    continues = status_persist.begin(state, event)
    if continues:
        autoscaler.begin(state)
        log_metrics.begin(state)
    if continues or event.is_left:
        failover.begin(state)
        autoscaler.look_at_schedule(state)
    else:
        text = f"Job {event.spec.name} starts: {requested(event.spec.replicas, 'member')}."
        state.announce("JobStarted", text)
        autoscaler.first(state)
        spec_update.announce_remarks(state, ())
        owner_scaling.begin(state)
    readiness.note_staffing(state)
    state.mark_status()


def _message(state: State, event: SidecarSaid) -> None:
    message = event.message
    if isinstance(message, Hello):
        membership_connections.greet(state, event.session, message)
        return
    member_id = state.membership.sessions.get(event.session)
    member = state.members.get(member_id) if member_id is not None else None
    if member is None:
        return
    failure_detector.heard(state, member)
    unreached.bound(state, member)
    MESSAGES[type(message)](state, member, message)


def _status_saved(state: State, event: StatusSaved) -> None:
    state.status.saved_version = max(state.status.saved_version, event.version)
    reservations.saved(state, event.version)
    world = state.world
    is_saved = state.stage == COMMITTING and world is not None and state.status.saved_version >= world.version
    if is_saved and world is not None:
        restore.start(state, world)


def _action_failed(state: State, event: ActionFailed) -> None:
    action = event.action
    if isinstance(action, WriteReplicas):
        autoscaler.not_written(state)
    if isinstance(action, owner_scaling.ASKING):
        owner_scaling.failed(state, event.error)
    elif isinstance(action, SaveStatus):
        text = (
            f"The status could not be saved: {event.error}. No generation starts until it is saved; the "
            f"master retries in {SAVE_AGAIN:.0f} s."
        )
        state.announce("StatusWriteFailed", text, warning=True)
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


def _regained(state: State, _event: LeaseRegained) -> None:
    past_lease.regained(state)
    nodecheck_rounds.resumed(state)


def _woke(state: State, _event: Woke) -> None:
    for kind, key in state.deadlines.take_due(state.now):
        if state.lease.lapsed and kind in past_lease.LATER:
            state.deadlines.set((kind, key), state.now + past_lease.AGAIN)
        else:
            DEADLINES[kind](state, key)
            handlers_occurrences.follow(state)


def _stalled(state: State, event: Stalled) -> None:
    progress_watch.note_stall(state, event.seconds)
    failure_detector.note_stall(state, event.seconds)


HANDLERS: dict[type, Callable[[State, Any], None]] = {
    Began: _began,
    SidecarSaid: _message,
    SidecarDisconnected: lambda state, event: membership_connections.disconnected(state, event.session),
    PodSeen: pod_status.seen,
    PodGone: pod_status.gone,
    PodsListed: pod_status.listed,
    NodeSeen: nodes.seen,
    CreateRejected: create_refused.refused,
    OwnerSized: spec_update.owner_sized,
    OwnerEnded: owner_scaling.ended,
    MemberProbed: lambda state, event: failure_detector.direct_probed(state, event.member, event.reachable),
    StatusSaved: _status_saved,
    ScaleRequested: lambda state, event: scaling_resize.scale(state, event.replicas),
    ScalingAsked: lambda state, _event: autoscaler.resume(state),
    TurnTold: placement_admission.admission_changed,
    SpecChanged: _edited,
    RestartRequested: lambda state, event: scaling_resize.restart(state, event.at_checkpoint),
    RestartRejected: lambda state, event: scaling_resize.restart_refused(state, event.why),
    StopAsked: lambda state, event: save_before_end.stop(state, event.reason, event.hard, event.within),
    Asked: lambda state, event: hangs_diagnostics.ask(state, event.request, event.what),
    ActionFailed: _action_failed,
    Woke: _woke,
    Stalled: _stalled,
    LeaseLost: past_lease.lapsed,
    LeaseRegained: _regained,
}
