"""Reports workers that run but have made no step while others train: they never connected, or wait for something.

A coordinator's workers make no steps at all. So only workers beside a chief whose session saves, or beside another
worker that makes steps, are watched. The master only emits an Event; users limit how long a start may take by
`--hang-after init=SECONDS`.
"""

from __future__ import annotations

from functools import partial

from outrider.master.core.ps import tally
from outrider.master.core.ps.state import CHIEF, PsState, Task
from outrider.master.core.ps.task_adapter import let
from outrider.master.core.spec import WORKER
from outrider.master.core.state.job import State
from outrider.master.core.text import seconds

RECENT = 30.0
"""Seconds since its last step after which a task no longer counts as training."""


def advance(job: PsState) -> None:
    """At the end of a step of the core."""
    for task in tally.changed(job, WORKER):
        _look(job, task)
    if job.late and job.trained_at > job.now - RECENT:
        for key in sorted(job.late):
            _look(job, job.tasks[key])


def _look(job: PsState, task: Task) -> None:
    due = _due(task)
    job.late.discard(task.key)
    if due is None or task.removed or task.reported_first == task.state.generation:
        return
    if due > job.now:
        job.deadlines.set(("first", task.name), due)
    elif others := _training(job, task):
        task.reported_first = task.state.generation
        let(job, task, partial(_announce, task.state, task.name, job.now - _began(task), others))
    else:
        job.late.add(task.key)
        job.deadlines.set(("first", task.name), job.now + RECENT)


def note_step(job: PsState, task: Task) -> None:
    """Called when the task may have made a step."""
    if _is_evidence(task):
        job.trained_at = max(job.trained_at, task.stepped_at)


def recount(job: PsState) -> None:
    """Ignores the steps of tasks that the job no longer has."""
    job.trained_at = max((each.stepped_at for each in job.tasks.values() if _is_evidence(each)), default=float("-inf"))


def _is_evidence(task: Task) -> bool:
    """Whether a step of this task shows that the other workers should make steps too."""
    return not task.removed and (task.role == WORKER or task.saver is not None)


def late(job: PsState, now: float) -> list[str]:
    """Names of the workers that were reported and still have made no step."""
    return [
        task.name
        for task in job.of(WORKER)
        if task.reported_first == task.state.generation and (due := _due(task)) is not None and due <= now
    ]


def _due(task: Task) -> float | None:
    """When the first step is late; None: the task does not run, or has made a step."""
    if task.runs is None or task.state.hangs.watch is None or task.stepped_at > _began(task):
        return None
    return _began(task) + task.state.spec.start_patience


def _began(task: Task) -> float:
    return task.state.hangs.watch.began if task.state.hangs.watch is not None else float("inf")


def _training(job: PsState, task: Task) -> list[str]:
    """Names of the other tasks that train, if their steps show that this one should too."""
    if job.trained_at <= job.now - RECENT:
        return []
    training = [each for each in job.of(CHIEF, WORKER) if each is not task and each.stepped_at > job.now - RECENT]
    return [each.name for each in training] if any(map(_is_evidence, training)) else []


def _announce(state: State, name: str, age: float, others: list[str]) -> None:
    text = (
        f"{name} has made no step in the {seconds(age)} since its script began, although {' and '.join(others)} "
        f"{'trains' if len(others) == 1 else 'train'}: it waits for something, or never connected to the parameter "
        f"servers. Run `outrider stacks` to see where it waits."
    )
    state.announce("NoFirstStep", text, next(iter(state.world.started), None) if state.world else None, warning=True)
