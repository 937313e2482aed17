"""Reports workers that run but have made no step while others train: they never connected, or wait for something.

A coordinator's workers make no steps at all. So only workers beside a chief whose session saves, or beside another
worker that makes steps, are watched. The master only emits an Event; users limit how long a start may take by
`--hang-after init=SECONDS`.
"""

from __future__ import annotations

from functools import partial

from outrider.master.core.ps import tally
from outrider.master.core.ps.state import CHIEF, PsState, Seat
from outrider.master.core.ps.task_adapter import let
from outrider.master.core.spec import WORKER
from outrider.master.core.state.job import State
from outrider.master.core.text import seconds

RECENT = 30.0
"""Seconds since its last step after which a task no longer counts as training."""


def advance(job: PsState) -> None:
    """At the end of a step of the core."""
    for seat in tally.changed(job, WORKER):
        _look(job, seat)
    if job.late and job.trained_at > job.now - RECENT:
        for key in sorted(job.late):
            _look(job, job.seats[key])


def _look(job: PsState, seat: Seat) -> None:
    due = _due(seat)
    job.late.discard(seat.key)
    if due is None or seat.removed or seat.told_first == seat.state.generation:
        return
    if due > job.now:
        job.deadlines.set(("first", seat.name), due)
    elif others := _training(job, seat):
        seat.told_first = seat.state.generation
        let(job, seat, partial(_announce, seat.state, seat.name, job.now - _began(seat), others))
    else:
        job.late.add(seat.key)
        job.deadlines.set(("first", seat.name), job.now + RECENT)


def note_step(job: PsState, seat: Seat) -> None:
    """Called when the task may have made a step."""
    if _is_evidence(seat):
        job.trained_at = max(job.trained_at, seat.stepped_at)


def recount(job: PsState) -> None:
    """Ignores the steps of tasks that the job no longer has."""
    job.trained_at = max((each.stepped_at for each in job.seats.values() if _is_evidence(each)), default=float("-inf"))


def _is_evidence(seat: Seat) -> bool:
    """Whether a step of this task shows that the other workers should make steps too."""
    return not seat.removed and (seat.role == WORKER or seat.saver is not None)


def late(job: PsState, now: float) -> list[str]:
    """Names of the workers that were reported and still have made no step."""
    return [
        seat.name
        for seat in job.of(WORKER)
        if seat.told_first == seat.state.generation and (due := _due(seat)) is not None and due <= now
    ]


def _due(seat: Seat) -> float | None:
    """When the first step is late; None: the task does not run, or has made a step."""
    if seat.runs is None or seat.state.hangs.watch is None or seat.stepped_at > _began(seat):
        return None
    return _began(seat) + seat.state.spec.start_patience


def _began(seat: Seat) -> float:
    return seat.state.hangs.watch.began if seat.state.hangs.watch is not None else float("inf")


def _training(job: PsState, seat: Seat) -> list[str]:
    """Names of the other tasks that train, if their steps show that this one should too."""
    if job.trained_at <= job.now - RECENT:
        return []
    training = [each for each in job.of(CHIEF, WORKER) if each is not seat and each.stepped_at > job.now - RECENT]
    return [each.name for each in training] if any(map(_is_evidence, training)) else []


def _announce(state: State, name: str, age: float, others: list[str]) -> None:
    text = (
        f"{name} has made no step in the {seconds(age)} since its script began, although {' and '.join(others)} "
        f"{'trains' if len(others) == 1 else 'train'}: it waits for something, or never connected to the parameter "
        f"servers. Run `outrider stacks` to see where it waits."
    )
    state.announce("NoFirstStep", text, next(iter(state.world.started), None) if state.world else None, warning=True)
