"""When the user stops the job, its script saves its state first, if it can."""

from __future__ import annotations

from outrider.master.core.checkpoints import planned_save
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import observe_only
from outrider.master.core.state.job import REBUILDING, State


def stop(state: State, reason: str, hard: bool, within: float | None = None) -> None:
    """Stops the job, after a save if possible.

    `hard`: without any grace. `within`: seconds after which the platform ends the members by itself.
    """
    reason = reason.rstrip(".")
    if within is not None:
        state.checkpoints.stop_by = state.now + within
    if observe_only.would(state, "end the job", f"{reason}."):
        return
    if state.is_over:
        if hard:
            generation_job_end.hurry(state, reason)
    elif hard or not _waits(state, reason):
        generation_job_end.stop_now(state, reason, hard=hard)
    else:
        state.stop_wanted = reason


def _waits(state: State, reason: str) -> bool:
    """Whether the stop waits for a save of the script's state, or for the members to report to a new master.

    A new master does not know its generation yet, and could only delete members that have not reported.
    """
    patience = (
        None
        if state.checkpoints.stop_by is None
        else planned_save.before_end(state, state.checkpoints.stop_by - planned_save.LEAVE_EARLY)
    )
    return state.stage == REBUILDING or planned_save.holds(state, f"the job is stopped: {reason}", patience)


def after_save(state: State) -> None:
    """Stops a job that waited for the save, once the script's state is saved or cannot be saved."""
    if state.stop_wanted and not _waits(state, state.stop_wanted):
        generation_job_end.stop_now(state, state.stop_wanted)
