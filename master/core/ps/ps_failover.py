"""A parameter server goes, and another one comes in its place: what that means for those who train.

They are left alone: TensorFlow's sessions recover by themselves when it serves again. Whoever ends with an error of
TensorFlow meanwhile, or soon after, ends for that, and it costs no restart. A session may also be stuck on the server
that is gone, or wait half a minute before it looks again. So when all serve again, and one that had made steps makes
none for some seconds, or its hooks see that it cannot (`training_hooks/frameworks/tf_session_recovery.py`), it is
started again in place: it alone, and not where its script has begun anew meanwhile. The chief comes first, because the
others wait for what it restores.
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
"""Seconds after all serve again in which the end of a rank is an effect."""
OF_TENSORFLOW = "errors_impl."
"""In the name of an error's type: what else a script raises is its own."""
PATIENCE = {CHIEF: 6.0, WORKER: 3.0}
"""Seconds in which a session that has noticed goes on: it is closed, another is made, and variables are restored."""
STEPS = 3
"""And so many of its usual steps, where those are long."""
LOOK_AGAIN = 0.5


def advance(job: PsState) -> None:
    """At the end of a step: who serves, and what has ended for it."""
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
    """A report is a second late; what it says of its last step is not."""
    if report.generation != seat.state.generation:
        return
    for rank in report.ranks:
        if rank.phase != "init":
            seat.stepped_at = max(seat.stepped_at, job.now - rank.step_age)
    stalled_workers.note_step(job, seat)
    if any(rank.is_stuck for rank in report.ranks) and not job.ps_away and not job.is_over:
        why = "though all servers can be reached again, the session that has lost one still holds its process"
        _start_again(job, seat, f"{seat.name} can make no other session: {why}")


def _note(job: PsState) -> bool:
    """True: until now all have served, and do so no more."""
    was_away = bool(job.ps_away)
    for seat in tally.changed(job, PS):
        if seat.runs is not None:
            job.ps_away.discard(seat.key)
            seat.served = True
        elif seat.served and seat.key not in job.ps_away:
            job.ps_away.add(seat.key)
            job.ps_lost = (
                seat.state.faults.noted[-1].reason if seat.state.faults.noted else f"{seat.name} does not serve."
            )
    if was_away and not job.ps_away:
        _wait(job)
    return bool(job.ps_away) and not was_away


def _wait(job: PsState) -> None:
    """All serve again: from now on, those who had trained should."""
    job.ps_back_at = job.now
    for seat in job.of(CHIEF, WORKER):
        seat.waits_since = job.now if seat.state.progress.first_step is not None else None
        tally.note(job, seat)
    job.deadlines.set(("stuck", ""), job.now + LOOK_AGAIN)


def _excuse(job: PsState, seat: Seat) -> None:
    """What has ended here is an effect."""
    incident = seat.state.faults.incident
    if incident is None or incident.free or incident.charged or seat.state.stage != STOPPING:
        return
    if not incident.failures or not all(OF_TENSORFLOW in failure.exit.error_type for failure in incident.failures):
        return  # somebody has killed it, or its script is wrong
    seat.state.faults.excuse()
    text = f"That is an effect of a lost parameter server ({job.ps_lost.rstrip('.')}): it costs no restart."
    let(job, seat, partial(seat.state.announce, "LostPsSideEffect", text, incident.fault.member))


# -- sessions that are stuck --------------------------------------------------------------------------------------
def look(job: PsState, _name: str) -> None:
    """All serve again: who goes on?"""
    if job.ps_away or job.is_over:
        return
    waiting = _waiting(job)
    chiefs = [seat for seat in waiting if seat.role == CHIEF]
    for seat in waiting:
        if _goes_on(job, seat):
            seat.waits_since = None
            tally.note(job, seat)
        elif _begins(seat):
            seat.waits_since = float("inf")
        elif chiefs and seat not in chiefs:
            seat.waits_since = max(seat.waits_since or 0.0, job.now)
        elif seat.waits_since is not None and job.now >= seat.waits_since + _patience(seat) - 1e-6:
            since = seconds(job.now - job.ps_back_at)
            makes_none = f"{seat.name} has made no step for {since} though all parameter servers serve again"
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
    """What a lost parameter server has cost is over when everybody trains again; where nobody did, it cost no step."""
    if all(seat.state.progress.first_step is None for seat in job.of(CHIEF, WORKER)):
        return
    for seat in job.of(PS):
        for fault in seat.state.faults.noted:
            if fault.seconds_lost is None:
                progress.note_cost(seat.state, fault, job.now)
                text = f"All who train go on with {seat.name}: {seconds(fault.seconds_lost or 0.0)} were lost."
                job.announce("Recovered", text)


def _goes_on(job: PsState, seat: Seat) -> bool:
    """It has made a step since then; one that is over is no question any more."""
    watch = seat.state.hangs.watch
    if seat.state.is_over or watch is None:
        return True
    return seat.runs is not None and seat.stepped_at > max(job.ps_back_at, watch.began)


def _begins(seat: Seat) -> bool:
    """A script that has made no step has no session of before that could be stuck."""
    return seat.state.hangs.watch is not None and seat.stepped_at <= seat.state.hangs.watch.began


def _start_again(job: PsState, seat: Seat, why: str) -> None:
    if seat.runs is None:
        return  # it is on its way already
    seat.waits_since = float("inf")
    job.deadlines.set(("stuck", ""), job.now + LOOK_AGAIN)
    reason = f"{why}, and it is started again in place."
    let(job, seat, partial(recovery.begin, seat.state, "SessionStuck", reason, seat.runs, free=True))
