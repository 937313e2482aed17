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
from outrider.master.core.ps.state import CHIEF, PS, PsState, Task
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
        for task in tally.changed(job, CHIEF, WORKER):
            catch_up(job, task)
    if job.ps_away or job.now < job.ps_back_at + EFFECT_WITHIN:
        for task in list(job.tasks.values()) if are_away else tally.changed(job):
            if task.role != PS:
                _excuse(job, task)


def note_report(job: PsState, task: Task, report: Report) -> None:
    """Notes a task's last step: its report may be a second old, but has the step's age."""
    if report.generation != task.state.generation:
        return
    for rank in report.ranks:
        if rank.phase != "init":
            task.stepped_at = max(task.stepped_at, job.now - rank.step_age)
    stalled_workers.note_step(job, task)
    if any(rank.is_stuck for rank in report.ranks) and not job.ps_away and not job.is_over:
        why = "all servers can be reached again, but the old session still blocks its process"
        _start_again(job, task, f"{task.name} cannot create a new session: {why}")


def _note(job: PsState) -> bool:
    """Notes which parameter servers are up; True if all were until now, and one is not any more."""
    was_away = bool(job.ps_away)
    for task in tally.changed(job, PS):
        if task.runs is not None:
            job.ps_away.discard(task.key)
            task.served = True
        elif task.served and task.key not in job.ps_away:
            job.ps_away.add(task.key)
            job.ps_lost = (
                task.state.faults.noted[-1].reason if task.state.faults.noted else f"{task.name} is not running."
            )
    if was_away and not job.ps_away:
        _wait(job)
    return bool(job.ps_away) and not was_away


def _wait(job: PsState) -> None:
    """Once all servers are back: starts to wait for a step of each task that had made steps."""
    job.ps_back_at = job.now
    for task in job.of(CHIEF, WORKER):
        task.waits_since = job.now if task.state.progress.first_step is not None else None
        tally.note(job, task)
    job.deadlines.set(("stuck", ""), job.now + LOOK_AGAIN)


def _excuse(job: PsState, task: Task) -> None:
    """Charges no restart for a failure that a lost parameter server has caused."""
    incident = task.state.faults.incident
    if incident is None or incident.free or incident.charged or task.state.stage != STOPPING:
        return
    if not incident.failures or not all(OF_TENSORFLOW in failure.exit.error_type for failure in incident.failures):
        return  # the process was killed, or its script is wrong
    task.state.faults.excuse()
    text = f"The failure is an effect of a lost parameter server ({job.ps_lost.rstrip('.')}): no restart is charged."
    let(job, task, partial(task.state.announce, "LostPsSideEffect", text, incident.fault.member))


# -- sessions that are stuck --------------------------------------------------------------------------------------
def look(job: PsState, _name: str) -> None:
    """Once all servers are back: restarts tasks that make no steps."""
    if job.ps_away or job.is_over:
        return
    waiting = _waiting(job)
    chiefs = [task for task in waiting if task.role == CHIEF]
    for task in waiting:
        if _has_resumed(job, task):
            task.waits_since = None
            tally.note(job, task)
        elif _begins(task):
            task.waits_since = float("inf")
        elif chiefs and task not in chiefs:
            task.waits_since = max(task.waits_since or 0.0, job.now)
        elif task.waits_since is not None and job.now >= task.waits_since + _patience(task) - 1e-6:
            since = seconds(job.now - job.ps_back_at)
            makes_none = f"{task.name} has made no step for {since} although all parameter servers are back"
            _start_again(job, task, f"{makes_none}: its session is stuck")
    if _waiting(job):
        job.deadlines.set(("stuck", ""), job.now + LOOK_AGAIN)
    else:
        _all_train(job)


def _patience(task: Task) -> float:
    steps = task.state.progress.step_seconds
    return PATIENCE[task.role] + (STEPS * median(steps) if steps else 0.0)


def _waiting(job: PsState) -> list[Task]:
    return [task for task in tally.those(job, tally.WAITS) if not task.removed]


def _all_train(job: PsState) -> None:
    """Notes the cost of a lost parameter server once all tasks train again; if none had trained, it cost no step."""
    if all(task.state.progress.first_step is None for task in job.of(CHIEF, WORKER)):
        return
    for task in job.of(PS):
        for fault in task.state.faults.noted:
            if fault.seconds_lost is None:
                progress.note_cost(task.state, fault, job.now)
                text = f"All workers train again with {task.name}: {seconds(fault.seconds_lost or 0.0)} were lost."
                job.announce("Recovered", text)


def _has_resumed(job: PsState, task: Task) -> bool:
    """Whether the task has made a step since the servers are back, or has ended."""
    watch = task.state.hangs.watch
    if task.state.is_over or watch is None:
        return True
    return task.runs is not None and task.stepped_at > max(job.ps_back_at, watch.began)


def _begins(task: Task) -> bool:
    """Whether the script has restarted and made no step yet: then it has no old session that could be stuck."""
    return task.state.hangs.watch is not None and task.stepped_at <= task.state.hangs.watch.began


def _start_again(job: PsState, task: Task, why: str) -> None:
    if task.runs is None:
        return  # it is being started already
    task.waits_since = float("inf")
    job.deadlines.set(("stuck", ""), job.now + LOOK_AGAIN)
    reason = f"{why}. The task is restarted in place."
    let(job, task, partial(recovery.begin, task.state, "SessionStuck", reason, task.runs, free=True))
