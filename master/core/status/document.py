"""The status document of a job, for users and for the next master; written by `SaveStatus`.

It is the document of `docs/contracts.md` §7 plus `saved`. It is written at once if a generation depends on it, else at
most once a second, and every ten seconds while nothing changes. A checkpoint alone does not count as a change, or a
script that saves every second would cause as many writes.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from outrider.master.core.account import goodput as account_goodput
from outrider.master.core.actions import SaveStatus
from outrider.master.core.generation import formation, reservations
from outrider.master.core.network import report as network_report
from outrider.master.core.scaling import curve as scaling_curve
from outrider.master.core.scaling import log_metric_values
from outrider.master.core.state.generation import Fault
from outrider.master.core.state.job import COMMITTING, ENDED, GATHERING, REBUILDING, RUNNING, STOPPING, State
from outrider.master.core.state.member import FAILED, SILENT, Member, in_order
from outrider.master.core.status import persist as status_persist
from outrider.master.core.stragglers import report as stragglers_report
from outrider.master.core.text import moment
from outrider.wire.messages.report import Report

LIVING_STATES = ("starting", "checking", "ready", "running", "stopping", "spare", "silent", "unsupervised", "done")
LEAST_APART = 1.0
AT_REST = 10.0
WOULD_SHOWN = 10


# -- writing ------------------------------------------------------------------------------------------------------
def written(state: State) -> None:
    """Notes that the whole status is being written now."""
    state.status.is_wanted, state.status.written_at = False, state.now
    state.deadlines.set(("status", ""), state.now + AT_REST)


def flush(state: State) -> None:
    """Writes the status at the end of a step if it is due, else sets the deadline at which it may be written."""
    if not state.status.reason and state.status.is_wanted and state.listed and not state.lease.lapsed:
        last = state.status.written_at
        earliest = state.status.not_before if last is None else max(last + LEAST_APART, state.status.not_before)
        if state.now >= earliest:
            state.save_status("The status has changed.")
        else:
            state.deadlines.set(("status", ""), earliest)
    if state.status.reason:
        _save(state)


def _save(state: State) -> None:
    reservations.reserve(state)
    written(state)
    kept = document(state, state.now) | {"saved": status_persist.saved(state)}
    state.act(SaveStatus(state.status.version, kept, state.generation, state.status.reason))
    state.status.reason = ""


def due(state: State) -> None:
    """Writes the status at its deadline, whether it has changed or not."""
    state.save_status("The status has changed." if state.status.is_wanted else "The status has not changed.")


# -- reading ------------------------------------------------------------------------------------------------------
def document(state: State, now: float) -> dict[str, Any]:
    """The status as users read it."""
    world = state.world
    return {
        "version": 1,
        "job": str(state.spec.name),
        "phase": state.phase,
        "generation": str(state.generation),
        "world": world.world_size if world is not None else 0,
        "step": state.progress.high_step,
        "step_estimated": state.progress.step_estimated,
        "steps_repeated": state.all_repeated,
        "resumed_from": world.resume.verdict if world is not None else "",
        "restarts": max(0, state.number - state.number_before - 1),
        **account_goodput.document([state], now),
        "goodput_by_steps": goodput_by_steps(state, now),
        "replicated_step": state.checkpoints.replicated_step,
        "checkpoint_saved_at": None if (at := state.counters.saved_at) is None else clock(state, at),
        "message": _message(state),
        "exit_code": state.exit_code,
        "modes": _modes(state),
        "faults": [_fault(state, fault) for fault in state.faults.noted],
        "dry_run": [*state.would.values()][-WOULD_SHOWN:] if state.spec.observed else None,
        "excluded_nodes": list(state.exclusion.avoiding),
        "memory": {str(index): needed for index, needed in sorted(state.faults.memory.items())},
        "node_check": state.nodecheck.rounds,
        **stragglers_report.document(state),
        **_in_place(state),
        "network": network_report.document(state),
        "unreachable": [m.id for m in sorted((m for m in state.members.values() if m.is_unreached), key=in_order)],
        **log_metric_values.document(state.metrics, state.spec.metrics_pattern, state.unix_offset),
        **scaling_curve.document(state.scaling, state.spec, state.target, state.unix_offset),
        "data": {
            "elastic": state.spec.elastic_data,
            "keep_global_batch": state.spec.keep_global_batch,
            "first_world": state.progress.first_world,
            "samples_repeated": state.checkpoints.samples_repeated,
            "notes": [note._asdict() for note in state.checkpoints.data_notes],
        },
        "members": [_member(state, m) for m in sorted(_everyone(state), key=in_order)],
    }


def _in_place(state: State) -> dict[str, Any]:
    found = {m.id: m.in_place[1] for _, m in sorted(state.members.items()) if m.in_place is not None}
    return {"non_atomic_saves": found} if found else {}


def _message(state: State) -> str:
    """What the job waits for or what happened last.

    Without a generation it is what ended the last one, then why none forms. With a running one, what it waits for comes
    before how it started.
    """
    if state.stage == GATHERING:
        return "; ".join(part for part in (state.message.rstrip("."), formation.of(state).reason) if part)
    if state.stage != RUNNING:
        return state.message
    if state.stop_wanted:
        return f"the job will stop once the script has saved its state: {state.stop_wanted}"
    if state.resize:
        return f"the job will {state.resize}; it waits for a finished checkpoint"
    return f"{state.restart_wanted}; it waits for a finished checkpoint" if state.restart_wanted else state.message


def goodput_by_steps(state: State, now: float) -> float | None:
    """New steps × median step time / time since the job began, as in earlier releases; None before the first step."""
    if state.progress.first_step is None or not state.progress.step_seconds or now <= state.began_at:
        return None
    new_steps = state.progress.high_step - state.progress.first_step + 1
    return min(1.0, new_steps * median(state.progress.step_seconds) / (now - state.began_at))


def _modes(state: State) -> dict[str, int]:
    counts: dict[str, int] = {}
    for member in state.members.values():
        if member.mode:
            counts[member.mode] = counts.get(member.mode, 0) + 1
    return dict(sorted(counts.items()))


def _fault(state: State, fault: Fault) -> dict[str, Any]:
    lost = None if fault.seconds_lost is None else round(fault.seconds_lost, 3)
    return {
        "time": clock(state, fault.at),
        "kind": fault.kind,
        "member": fault.member,
        "reason": fault.reason,
        "seconds_lost": lost,
        **({"stages": fault.stages} if fault.stages else {}),
    }


def clock(state: State, at: float) -> str:
    """A moment of the core's clock as RFC 3339 in UTC."""
    return moment(at + state.unix_offset)


def _everyone(state: State) -> list[Member]:
    return [*state.placement.past.values(), *state.members.values()]


def _member(state: State, member: Member) -> dict[str, Any]:
    report = member.report
    is_here = member.id in state.members and state.stage != ENDED
    return {
        "id": str(member.id),
        "role": str(member.role),
        "rank_index": member.rank_index,
        "state": member_state(state, member),
        "mode": member.mode,
        "mode_reason": member.mode_reason,
        **({"blocked": member.pod_reason} if is_here and member.cannot_start else {}),
        "step": _step(state, report) if report else 0,
        "cpu": round(report.cpu, 2) if report and is_here else 0.0,
        "memory_mib": round(report.memory_mib, 1) if report and is_here else 0.0,
        "memory_limit_mib": round(member.memory_limit / 2**20, 1),
        "node": member.node,
        "gpus": report.gpus if report else 0,
        **_own_time(state, member),
        **network_report.of_member(state, member),
        "pids": {
            "sidecar": report.sidecar_pid if report and is_here else 0,
            "trainer": member.trainer_pid if is_here else 0,
            "workers": list(report.pids) if report and is_here else [],
        },
    }


def _own_time(state: State, member: Member) -> dict[str, float]:
    """A member's own time of a step beside the others', as the straggler comparison measured them last."""
    lag = None if state.world is None else state.world.comparison.pace.get(member.id)
    return {} if lag is None else {"own_seconds": round(lag.own, 4), "others_seconds": round(lag.others, 4)}


def _step(state: State, report: Report) -> int:
    """The step of a report, counted as the job counts steps."""
    is_now = report.step > 0 and state.world is not None and report.generation == state.world.generation
    return report.step + (state.world.resume.counts_from if state.world is not None and is_now else 0)


def member_state(state: State, member: Member) -> str:
    """One of starting, checking, ready, running, stopping, spare, silent, unsupervised, lost, replaced, gone, failed,
    done."""
    if member.id not in state.members:
        return _past_state(state, member)
    if member.is_stranger:
        return "done" if member.finished else "unsupervised"
    if member.life == SILENT:
        return "silent"
    world = state.world
    if state.stage == ENDED:
        return "done" if member.finished or (world is not None and member.id in world.done) else "gone"
    if world is not None and member.id in world.places and state.stage not in (COMMITTING, REBUILDING):
        if member.finished or member.id in world.done:
            return "done"
        if state.stage == RUNNING and member.id in world.started:
            return "running"
        if state.stage == STOPPING and member.ready is None:
            return "stopping" if member.stopped < world.generation else "starting"
        if state.is_over and member.stopped < world.generation and member.orders:
            return "stopping"
    if state.nodecheck.check is not None and member.id in state.nodecheck.check.orders:
        return "checking"
    if member.ready is None:
        return "starting"
    return "ready" if member.rank_index is not None else "spare"


def _past_state(state: State, member: Member) -> str:
    if member.life == FAILED:
        return "failed"
    if not member.lost_by_fault and member.leaving:
        return "gone"
    index = member.rank_index
    taken = index is None or index in state.placement.holders
    return "replaced" if taken else "lost"
