"""When a PS job ends, and how members that would never end by themselves are stopped (ADR 21).

A job with a chief ends when the chief has ended with code 0, one without a chief when all workers have. A task that has
failed fails the job.
"""

from __future__ import annotations

from functools import partial

from outrider.master.core.actions import DeletePod
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import stages
from outrider.master.core.ps import tally
from outrider.master.core.ps.state import CHIEF, EVALUATOR, PsState, Task, has_ended
from outrider.master.core.ps.task_adapter import let
from outrider.master.core.spec import WORKER
from outrider.master.core.state.job import FINISHING

LAST_EVALUATION = 60.0
"""Seconds that an evaluator has for the last checkpoint once the training is over."""
REMOVE_GRACE = 10.0
"""Seconds of grace with which the pod of a removed task is deleted."""


def advance(job: PsState) -> None:
    """At the end of a step."""
    for task in tally.changed(job):
        if task.removed and has_ended(task):
            _forget(job, task)
    if not job.is_over:
        _judge(job)
    if job.stage == FINISHING:
        _finish(job)


def _judge(job: PsState) -> None:
    failed = tally.those(job, "failed")
    if failed:
        _fail(job, failed[0])
        return
    has_chief = tally.has(job, tally.WANTED, CHIEF)
    deciding = CHIEF if has_chief else WORKER
    if tally.has(job, tally.WANTED, deciding) and not tally.has(job, tally.UNDONE, deciding):
        steps = max(task.state.progress.high_step for task in job.tasks.values())
        are_many = tally.count(job, tally.WANTED, WORKER) > 1
        ended = "The chief has" if has_chief else "All workers have" if are_many else "The worker has"
        _begin_end(job, 0, "succeeded", generation_job_end.ended_well(ended, steps))
        job.announce("JobSucceeded", job.message)


def _fail(job: PsState, failed: Task) -> None:
    _begin_end(job, failed.state.exit_code or 1, "failed", failed.state.message)
    for task in job.tasks.values():
        if not task.state.is_over:
            why = f"{failed.name} has failed: {job.message}"
            let(job, task, partial(generation_job_end.fail, task.state, job.exit_code or 1, why))


def stop(job: PsState, reason: str) -> None:
    """Ends the job on the user's request, which its tasks have received already."""
    if not job.is_over:
        _begin_end(job, 0, "stopped", f"The job was stopped: {reason.rstrip('.')}.")


def _begin_end(job: PsState, code: int, phase: str, message: str) -> None:
    stages.move(job, "job over")
    job.exit_code, job.phase, job.message = code, phase, message
    job.save_wanted = job.save_due = True
    job.deadlines.set(("evaluator", ""), job.now + LAST_EVALUATION)


def _finish(job: PsState) -> None:
    """Stops all tasks that have not ended, the evaluator last."""
    if job.phase == "succeeded":
        for task in tally.those(job, tally.LIVES):
            if not (task.role == EVALUATOR and _evaluates(job, task)):
                let(job, task, partial(generation_job_end.stop_now, task.state, "the training is over"))
    if not tally.has(job, tally.STAYS):
        stages.move(job, "end acknowledged")
        job.save_wanted = job.save_due = True


def _evaluates(job: PsState, task: Task) -> bool:
    return task.runs is not None and job.deadlines.at(("evaluator", "")) is not None


def _forget(job: PsState, task: Task) -> None:
    """Deletes the ended pod of a task that the job no longer has."""
    for member in task.state.members.values():
        if member.uid is not None:
            reason = f"{member.id} is deleted: the job has only {job.target} workers now."
            job.actions.append(DeletePod(member.id, member.uid, REMOVE_GRACE, job.generation, reason))
        job.crowd.forget(member.id)
    tally.forget(job, task)
