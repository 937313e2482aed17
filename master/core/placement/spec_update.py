"""A job whose spec is edited while it runs: another size, other budgets and timeouts, suspended, resumed.

A new size is handled like `scale`: the next generation is larger or smaller. A suspended job stops its generation with
all grace periods, deletes its members and keeps its progress; the members of a resumed job do not count as relaunches.
A changed template applies to new pods: no member that trains is stopped for it, but pods that could not start are
recreated.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.master.core.checkpoints import planned_save
from outrider.master.core.events import OwnerSized, SpecChanged
from outrider.master.core.faults import delete_pod
from outrider.master.core.generation import formation, lifecycle, readiness
from outrider.master.core.membership import connections as membership_connections
from outrider.master.core.placement import admission as placement_admission
from outrider.master.core.placement import owner_scaling
from outrider.master.core.scaling import autoscaler, log_metrics
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.job import COMMITTING, GATHERING, RUNNING, State
from outrider.master.core.state.occurrences import SpecEdited
from outrider.master.core.text import requested


def edited(state: State, event: SpecChanged) -> None:
    if state.is_over:
        return
    before, state.spec = state.spec, event.spec
    if _patience(before) != _patience(event.spec):
        for member in [member for _id, member in sorted(state.members.items())]:
            membership_connections.welcome(state, member, "The job's patience was edited.")
    is_own = autoscaler.is_own(state, event.spec.replicas)
    if event.spec.replicas != state.target and not is_own:
        state.announce("ScaleRequested", f"{requested(event.spec.replicas, 'member')} instead of {state.target}.")
        autoscaler.scaled_by_hand(state, event.spec.replicas)
        state.target = event.spec.replicas
    autoscaler.edited(state, before)
    log_metrics.edited(state, before)
    state.placement.suspend_wanted = event.suspended
    _suspend_or_resume(state)
    announce_remarks(state, before.remarks)
    autoscaler.follow_schedule(state)
    if event.has_new_template and not state.placement.suspended:
        _use_template(state)
    state.occur(SpecEdited(before))
    readiness.note_staffing(state)
    readiness.note_resize(state)
    state.mark_status()


def announce_remarks(state: State, announced: Sequence[str]) -> None:
    """Announces each remark on the spec once, as long as it applies."""
    for remark in state.spec.remarks:
        if remark not in announced:
            state.announce("FieldIgnored", remark)


def _use_template(state: State) -> None:
    """Recreates pods that never started, at no cost: the changed template may mend what blocks them.

    A pod whose creation was refused is requested again at once.
    """
    text = "New pods get the changed template; running pods keep theirs until they are replaced."
    state.announce("TemplateChanged", text)
    for member in [m for _id, m in sorted(state.members.items()) if m.cannot_start and not m.greeted]:
        if member.uid is None:
            state.deadlines.set(("create", member.id), state.now)
        elif member.pod_phase == "pending" and not member.deleting and not state.spec.is_adopted:
            if member.rank_index is not None:
                state.placement.held.discard(member.rank_index)
            reason = f"{member.id} is recreated with the changed template: it could not start, {member.pod_reason}."
            state.announce("PodRecreated", reason, member.id)
            delete_pod.dismiss(state, member, reason)


def _patience(spec: JobSpec) -> tuple[float, ...]:
    """The limits on which a sidecar acts by itself when it is cut off."""
    return (spec.silent_after, spec.stop_grace, spec.handler_grace, spec.save_grace)


def owner_sized(state: State, event: OwnerSized) -> None:
    """Follows the owner's size, and suspends the job if the owner is suspended: no replacement would be created."""
    if state.spec.is_adopted and not state.is_over and state.placement.owner.suspended != event.suspended:
        state.placement.owner.suspended = event.suspended
        _suspend_or_resume(state)
        readiness.note_staffing(state)
        state.mark_status()
    owner_scaling.sized(state, event)


def _suspend_or_resume(state: State) -> None:
    is_requested = state.placement.suspend_wanted or state.placement.owner.suspended
    if is_requested and not state.placement.suspended:
        _suspend(state)
    elif state.placement.suspended and not is_requested:
        _resume(state)


def _suspend(state: State) -> None:
    state.placement.suspended = True
    placement_admission.forget(state)
    text = f"{formation.suspended(state)} Its members stop with all grace periods and are deleted."
    state.announce("JobSuspended", text)


def hold(state: State) -> None:
    """At the end of a step: stops any generation of a suspended job."""
    if not state.placement.suspended:
        return
    if state.stage in (RUNNING, COMMITTING) and not planned_save.holds(state, "the job is suspended"):
        lifecycle.stop(state, formation.suspended(state))
    if state.stage == GATHERING and state.phase != "suspended":
        state.phase, state.message = "suspended", ""
        state.mark_status()


def _resume(state: State) -> None:
    state.placement.suspended, state.patient = False, True
    state.placement.forget_losses()
    if state.stage == GATHERING:
        state.phase, state.message = "pending", ""
    owner = "The owner of the pods is resumed and creates them again." if state.spec.is_adopted else ""
    state.announce("JobResumed", owner or "The job is resumed: its members are created again.")
