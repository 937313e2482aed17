"""A job that is edited while it runs: other sizes, budgets and patience, suspended, resumed.

Sizes are a wish like any other: the world grows and shrinks as it does for `scale`. A suspended job stops its world
with all graces, lets every member go and keeps what it has achieved; the members of a resumed one are no relaunches.
"""

from __future__ import annotations

from master.core import generations, membership, standing, status, unchecked, watching
from master.core.events import SpecChanged
from master.core.spec import JobSpec
from master.core.state import COMMITTING, GATHERING, RUNNING, State, counted

SUSPENDED = "The job is suspended."


def edited(state: State, event: SpecChanged) -> None:
    if state.is_over:
        return
    before, state.spec = state.spec, event.spec
    if _patience(before) != _patience(event.spec):
        for member in [member for _id, member in sorted(state.members.items())]:
            membership.welcome(state, member, "The job's patience was edited.")
    if before.node_check and not event.spec.node_check:
        unchecked.forget(state)
    if event.spec.replicas != state.target:
        wanted = counted(event.spec.replicas, "member")
        state.announce("ScaleAsked", f"{wanted} are wanted instead of {state.target}.")
        state.target = event.spec.replicas
    if event.suspended and not state.suspended:
        _suspend(state)
    elif state.suspended and not event.suspended:
        _resume(state)
    watching.edited(state)
    standing.note_staffing(state)
    standing.note_resize(state)
    status.mark(state)


def _patience(spec: JobSpec) -> tuple[float, ...]:
    """What a sidecar acts on by itself, when it is cut off."""
    return (spec.silent_after, spec.stop_grace, spec.handler_grace, spec.save_grace)


def _suspend(state: State) -> None:
    state.suspended = True
    state.announce("JobSuspended", f"{SUSPENDED} Its members stop with all graces and go.")


def hold(state: State) -> None:
    """At the end of a step: no world of a suspended job runs, whoever formed it."""
    if not state.suspended:
        return
    if state.stage in (RUNNING, COMMITTING):
        generations.stop(state, SUSPENDED)
    if state.stage == GATHERING and state.phase != "suspended":
        state.phase, state.message = "suspended", SUSPENDED
        status.mark(state)


def _resume(state: State) -> None:
    state.suspended, state.patient = False, True
    state.held.clear()
    state.spares_made = 0
    if state.stage == GATHERING:
        state.phase, state.message = "pending", "waiting for members"
    state.announce("JobResumed", "The job is resumed: its members are made anew.")
