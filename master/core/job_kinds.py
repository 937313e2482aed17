"""One interface for both kinds of jobs: all-reduce jobs, and PS jobs, which consist of tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outrider.master.core import step as core_step
from outrider.master.core.actions import Action
from outrider.master.core.events import Event, LeaseLost, LeaseRegained
from outrider.master.core.history import document as history_document
from outrider.master.core.placement import admission as placement_admission
from outrider.master.core.ps import history as ps_history
from outrider.master.core.ps import status as ps_status
from outrider.master.core.ps import step as ps_step
from outrider.master.core.ps.state import CHIEF, PsState
from outrider.master.core.ps.task_adapter import OF_THE_JOB
from outrider.master.core.spec import WORKER, JobSpec
from outrider.master.core.state.job import RUNNING, State
from outrider.master.core.status import document as status_document

Job = State | PsState


@dataclass(frozen=True, slots=True)
class Position:
    """How far a job has come, and with how many members."""

    generation: str
    """The running generation; `-` for a PS job, whose members have generations of their own."""
    members: int
    """The number of members whose ranks run."""
    step: int
    """The highest step ever made."""
    stepped_at: float | None
    """The moment of that step by the core's clock, in seconds; None before the first step."""
    unix_offset: float
    """Seconds to add to `stepped_at` for a unix time."""


def new(spec: JobSpec, next_order: int = 1) -> Job:
    """The state before Began."""
    return PsState(next_order=next_order) if spec.is_ps else State(next_order=next_order)


def step(job: Job, event: Event, now: float) -> list[Action]:
    if isinstance(job, PsState):  # without the Lease no task starts: each start is saved first
        return [] if isinstance(event, LeaseLost | LeaseRegained) else ps_step.step(job, event, now)
    return core_step.step(job, event, now)


def next_deadline(job: Job) -> float | None:
    return ps_step.next_deadline(job) if isinstance(job, PsState) else core_step.next_deadline(job)


def describe(job: Job) -> str:
    return ps_step.describe(job) if isinstance(job, PsState) else core_step.describe(job)


def check(job: Job) -> None:
    if isinstance(job, PsState):
        ps_step.check(job)
    else:
        core_step.check(job)


def document(job: Job, now: float) -> dict[str, Any]:
    """The status document that users read."""
    return ps_status.document(job, now) if isinstance(job, PsState) else status_document.document(job, now)


def history(job: Job, now: float) -> dict[str, Any]:
    """The part of the history that this master has seen, up to now; empty before the job has begun."""
    if isinstance(job, PsState) and not job.tasks:
        return {}
    return ps_history.part(job, now) if isinstance(job, PsState) else history_document.part(job, now)


def parts(job: Job) -> Sequence[State]:
    """The states with a generation of their own: that of the job, or those of its tasks."""
    return [task.state for task in job.tasks.values()] if isinstance(job, PsState) else [job]


def accounts(job: Job) -> Sequence[State]:
    """The states whose members make steps, and so have a time account."""
    return [task.state for role in (CHIEF, WORKER) for task in job.of(role)] if isinstance(job, PsState) else [job]


def events(job: Job) -> Counter[str]:
    """The number of Events by kind; of a PS job those that its tasks emit."""
    total: Counter[str] = Counter()
    for part in parts(job):
        total.update(part.counters.events)
    for kind in OF_THE_JOB if isinstance(job, PsState) else ():
        total.pop(kind, None)
    return total


def lacks_room(job: Job) -> bool:
    """Whether the cluster lacks room for the job's minimum; never for a PS job, which trains with any members."""
    return not isinstance(job, PsState) and placement_admission.lacks_room(job)


def waits_behind(job: Job) -> str:
    return "" if isinstance(job, PsState) else job.placement.waits_behind


def phase_of(job: Job) -> str:
    return ps_status.phase(job) if isinstance(job, PsState) else job.phase


def position(job: Job) -> Position:
    """The job's progress, as it is recorded."""
    if isinstance(job, PsState):
        furthest = max(parts(job), key=lambda state: state.progress.high_step, default=None)
        step, at = (furthest.progress.high_step, furthest.progress.high_step_at) if furthest else (0, None)
        running = sum(task.runs is not None for task in job.tasks.values())
        return Position("-", running, step, at, job.unix_offset)
    members = len(job.world.places) if job.world is not None and job.stage == RUNNING else 0
    return Position(str(job.generation), members, job.progress.high_step, job.progress.high_step_at, job.unix_offset)
