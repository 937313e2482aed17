"""Failover of a parameter server: what the loss means for the chief and the workers.

They are left alone: TensorFlow's sessions recover by themselves when the server is back. If one ends with a TensorFlow
error meanwhile, or soon after, the lost server is the cause, and no restart is charged. A session may also be stuck on
the lost server, or wait half a minute before it tries again. So once all servers are back, a task is restarted in place
if it had made steps and makes none for some seconds, or if its hooks see that it cannot
(`training_hooks/frameworks/tf_session_recovery.py`). That task alone is restarted, and not if its script has restarted
meanwhile. The chief comes first, because the workers wait for what it restores.
"""

from __future__ import annotations

from functools import partial
from statistics import median

from outrider.master.core.faults import recovery
from outrider.master.core.generation import progress
from outrider.master.core.ps import stalled_workers, tally
from outrider.master.core.ps.state import CHIEF, PS, PsState, Seat
from outrider.master.core.ps.task_adapter import catch_up, let
from outrider.master.core.spec import WORKER
from outrider.master.core.state.job import STOPPING
from outrider.master.core.text import seconds
from outrider.wire.messages.report import Report

EFFECT_WITHIN = 30.0
"""Seconds after all servers are back in which the end of a rank counts as an effect of the loss."""
OF_TENSORFLOW = "errors_impl."
"""The part of an error type's name that marks TensorFlow's errors; all others are the script's own."""
PATIENCE = {CHIEF: 6.0, WORKER: 3.0}
"""Seconds that a session needs to recover: it is closed, a new one is created, and variables are restored."""
STEPS = 3
"""Usual steps of the task that are added to `PATIENCE`, because they may be long."""
LOOK_AGAIN = 0.5
"""Seconds from one look at waiting tasks to the next."""


def advance(job: PsState) -> None:
    """At the end of a step: notes which servers are up, and excuses failures that their loss caused."""
    are_away = _note(job)
    if tally.has(job, tally.ABSENT, PS):
        job.no_turns += 1
        for seat in tally.changed(job, CHIEF, WORKER):
            catch_up(job, seat)
    if job.ps_away or job.now < job.ps_back_at + EFFECT_WITHIN:
        for seat in list(job.seats.values()) if are_away else tally.changed(job):
            if seat.role != PS:
                _excuse(job, seat)


def note_report(job: PsState, seat: Seat, report: Report) -> None:
    """Notes a task's last step: its report may be a second old, but has the step's age."""
    if report.generation != seat.state.generation:
        return
    for rank in report.ranks:
        if rank.phase != "init":
            seat.stepped_at = max(seat.stepped_at, job.now - rank.step_age)
    stalled_workers.note_step(job, seat)
    if any(rank.is_stuck for rank in report.ranks) and not job.ps_away and not job.is_over:
        why = "all servers can be reached again, but the old session still blocks its process"
        _start_again(job, seat, f"{seat.name} cannot create a new session: {why}")


def _note(job: PsState) -> bool:
    """Notes which parameter servers are up; True if all were until now, and one is not any more."""
    was_away = bool(job.ps_away)
    for seat in tally.changed(job, PS):
        if seat.runs is not None:
            job.ps_away.discard(seat.key)
            seat.served = True
        elif seat.served and seat.key not in job.ps_away:
            job.ps_away.add(seat.key)
            job.ps_lost = (
                seat.state.faults.noted[-1].reason if seat.state.faults.noted else f"{seat.name} is not running."
            )
    if was_away and not job.ps_away:
        _wait(job)
    return bool(job.ps_away) and not was_away


def _wait(job: PsState) -> None:
    """Once all servers are back: starts to wait for a step of each task that had made steps."""
    job.ps_back_at = job.now
    for seat in job.of(CHIEF, WORKER):
        seat.waits_since = job.now if seat.state.progress.first_step is not None else None
        tally.note(job, seat)
    job.deadlines.set(("stuck", ""), job.now + LOOK_AGAIN)


def _excuse(job: PsState, seat: Seat) -> None:
    """Charges no restart for a failure that a lost parameter server has caused."""
    incident = seat.state.faults.incident
    if incident is None or incident.free or incident.charged or seat.state.stage != STOPPING:
        return
    if not incident.failures or not all(OF_TENSORFLOW in failure.exit.error_type for failure in incident.failures):
        return  # the process was killed, or its script is wrong
    seat.state.faults.excuse()
    text = f"The failure is an effect of a lost parameter server ({job.ps_lost.rstrip('.')}): no restart is charged."
    let(job, seat, partial(seat.state.announce, "LostPsSideEffect", text, incident.fault.member))


# -- sessions that are stuck --------------------------------------------------------------------------------------
def look(job: PsState, _name: str) -> None:
    """Once all servers are back: restarts tasks that make no steps."""
    if job.ps_away or job.is_over:
        return
    waiting = _waiting(job)
    chiefs = [seat for seat in waiting if seat.role == CHIEF]
    for seat in waiting:
        if _has_resumed(job, seat):
            seat.waits_since = None
            tally.note(job, seat)
        elif _begins(seat):
            seat.waits_since = float("inf")
        elif chiefs and seat not in chiefs:
            seat.waits_since = max(seat.waits_since or 0.0, job.now)
        elif seat.waits_since is not None and job.now >= seat.waits_since + _patience(seat) - 1e-6:
            since = seconds(job.now - job.ps_back_at)
            makes_none = f"{seat.name} has made no step for {since} although all parameter servers are back"
            _start_again(job, seat, f"{makes_none}: its session is stuck")
    if _waiting(job):
        job.deadlines.set(("stuck", ""), job.now + LOOK_AGAIN)
    else:
        _all_train(job)


def _patience(seat: Seat) -> float:
    steps = seat.state.progress.step_seconds
    return PATIENCE[seat.role] + (STEPS * median(steps) if steps else 0.0)


def _waiting(job: PsState) -> list[Seat]:
    return [seat for seat in tally.those(job, tally.WAITS) if not seat.removed]


def _all_train(job: PsState) -> None:
    """Notes the cost of a lost parameter server once all tasks train again; if none had trained, it cost no step."""
    if all(seat.state.progress.first_step is None for seat in job.of(CHIEF, WORKER)):
        return
    for seat in job.of(PS):
        for fault in seat.state.faults.noted:
            if fault.seconds_lost is None:
                progress.note_cost(seat.state, fault, job.now)
                text = f"All workers train again with {seat.name}: {seconds(fault.seconds_lost or 0.0)} were lost."
                job.announce("Recovered", text)


def _has_resumed(job: PsState, seat: Seat) -> bool:
    """Whether the task has made a step since the servers are back, or has ended."""
    watch = seat.state.hangs.watch
    if seat.state.is_over or watch is None:
        return True
    return seat.runs is not None and seat.stepped_at > max(job.ps_back_at, watch.began)


def _begins(seat: Seat) -> bool:
    """Whether the script has restarted and made no step yet: then it has no old session that could be stuck."""
    return seat.state.hangs.watch is not None and seat.stepped_at <= seat.state.hangs.watch.began


def _start_again(job: PsState, seat: Seat, why: str) -> None:
    if seat.runs is None:
        return  # it is being started already
    seat.waits_since = float("inf")
    job.deadlines.set(("stuck", ""), job.now + LOOK_AGAIN)
    reason = f"{why}. The task is restarted in place."
    let(job, seat, partial(recovery.begin, seat.state, "SessionStuck", reason, seat.runs, free=True))
