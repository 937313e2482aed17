"""The handler of each kind of deadline."""

from __future__ import annotations

from collections.abc import Callable

from outrider.master.core.checkpoints import memory_tier, planned_save, restore
from outrider.master.core.faults import delete_pod, node_exclusion, recovery
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import lifecycle, orders, readiness
from outrider.master.core.hangs import detector as hangs_detector
from outrider.master.core.hangs import diagnostics as hangs_diagnostics
from outrider.master.core.hangs import looks as hangs_looks
from outrider.master.core.membership import connections as membership_connections
from outrider.master.core.membership import (
    failover,
    failure_detector,
    pod_deletion,
    unreached,
)
from outrider.master.core.network import partition
from outrider.master.core.nodecheck import rounds as nodecheck_rounds
from outrider.master.core.placement import (
    failed_pods,
    nodes,
    owner_scaling,
    pod_blocked,
    pod_status,
)
from outrider.master.core.placement import replicas as placement_replicas
from outrider.master.core.scaling import autoscaler, log_metrics
from outrider.master.core.scaling import resize as scaling_resize
from outrider.master.core.state.job import COMMITTING, State
from outrider.master.core.status import document as status_document

SAVE_AGAIN = 1.0


def _include_nodes_again(state: State, member_id: str) -> None:
    member = node_exclusion.forgive(state, member_id)
    if member is not None:
        reason = f"{member.id} is recreated and may use the nodes that it avoided: no other node has room."
        delete_pod.dismiss(state, member, reason)


def _save_again(state: State, _key: str) -> None:
    saved, world = state.status.saved_version, state.world
    if saved < state.status.version:
        state.save_status("The last status could not be saved.")
        if state.stage == COMMITTING and world is not None and saved < world.version:  # else it waits for replicas
            world.version = state.status.version


def _last_reports_due(state: State, _key: str) -> None:
    readiness.stir(state)


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
    "unreachable": unreached.due,
    "alone": unreached.alone_soon,
    "failed pod": failed_pods.lingers,
    "no room": _include_nodes_again,
    "confirm": membership_connections.unconfirmed,
    "unready": membership_connections.unready,
    "ticket": membership_connections.renew_ticket,
    "start": recovery.start_overdue,
    "stop": lifecycle.give_up_waiting,
    "hold": recovery.end_hold,
    "last word": _last_reports_due,
    "resize": lambda state, _key: scaling_resize.patience_over(state),
    "leave": scaling_resize.leave_now,
    "move": planned_save.due,
    "saved state": planned_save.overdue,
    "fetch": restore.overdue,
    "copied": memory_tier.overdue,
    "create": placement_replicas.create_due,
    "delete": delete_pod.again,
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
