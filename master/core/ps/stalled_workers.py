"""A worker that runs, and has made no step while the others train. It has never connected, or waits for something.

A coordinator's workers make no steps at all. So this is about workers beside a chief whose session saves, or beside
another worker that makes steps. It is told; what a start may take is the user's to say (`--hang-after init=SECONDS`).
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
"""Seconds: whose last step is older does not train either."""


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
    elif others := _who_train(job, seat):
        seat.told_first = seat.state.generation
        let(job, seat, partial(_tell, seat.state, seat.name, job.now - _began(seat), others))
    else:
        job.late.add(seat.key)
        job.deadlines.set(("first", seat.name), job.now + RECENT)


def note_step(job: PsState, seat: Seat) -> None:
    """It may have made one."""
    if _teaches(seat):
        job.trained_at = max(job.trained_at, seat.stepped_at)


def recount(job: PsState) -> None:
    """The steps of a seat that is not wanted any more say nothing."""
    job.trained_at = max((each.stepped_at for each in job.seats.values() if _teaches(each)), default=float("-inf"))


def _teaches(seat: Seat) -> bool:
    """If it trains, others should."""
    return not seat.removed and (seat.role == WORKER or seat.saver is not None)


def late(job: PsState, now: float) -> list[str]:
    """Names of those of whom it has been told, and who still have made none."""
    return [
        seat.name
        for seat in job.of(WORKER)
        if seat.told_first == seat.state.generation and (due := _due(seat)) is not None and due <= now
    ]


def _due(seat: Seat) -> float | None:
    """When a first step is late; None: it does not run, or has made one."""
    if seat.runs is None or seat.state.hangs.watch is None or seat.stepped_at > _began(seat):
        return None
    return _began(seat) + seat.state.spec.start_patience


def _began(seat: Seat) -> float:
    return seat.state.hangs.watch.began if seat.state.hangs.watch is not None else float("inf")


def _who_train(job: PsState, seat: Seat) -> list[str]:
    if job.trained_at <= job.now - RECENT:
        return []
    training = [each for each in job.of(CHIEF, WORKER) if each is not seat and each.stepped_at > job.now - RECENT]
    return [each.name for each in training] if any(map(_teaches, training)) else []


def _tell(state: State, name: str, age: float, others: list[str]) -> None:
    text = (
        f"{name} has made no step in the {seconds(age)} since its script began, and {' and '.join(others)} "
        f"{'trains' if len(others) == 1 else 'train'}: it waits for something, or has never connected to the parameter "
        f"servers. Its stacks (outrider stacks) show where it is."
    )
    state.announce("NoFirstStep", text, next(iter(state.world.started), None) if state.world else None, warning=True)
