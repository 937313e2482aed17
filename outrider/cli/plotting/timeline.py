"""Reads the timeline of a local job from its folder: status, events, `progress.jsonl` and `loss.jsonl`.

Times are seconds since the job began. Only recorded data is drawn: between two records, steps are assumed to be evenly
distributed; repeated steps are not progress; and only losses that a rank has printed appear.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from pathlib import Path
from statistics import fmean
from time import time
from typing import Any

from outrider.cli import job_dirs
from outrider.cli.documents import saved_events, status_of
from outrider.cli.errors import UserError
from outrider.cli.run.loss_record import SILENT
from outrider.runtime.series import moments

Points = list[tuple[float, float]]
"""(time, value) pairs, in order of time."""
BINS = 240
SMOOTHED = 25
"""The most losses in one mean."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time in which a generation ran."""

    begin: float
    end: float
    members: int
    generation: str = ""
    """The generation; empty for a PS job, whose members have separate generations."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A fault on the timeline."""

    at: float
    clock: float
    """Unix time of the fault."""
    reason: str
    seconds_lost: float | None


@dataclass(frozen=True, slots=True)
class Timeline:
    job: str
    phase: str
    began: float
    """Unix time of the job's begin."""
    end: float
    step: int = 0
    steps: Points = field(default_factory=list)
    """The number of steps at each time; it never decreases."""
    losses: Points = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    faults: list[Mark] = field(default_factory=list)


def timeline_of(job: str) -> Timeline:
    """The timeline of a job that runs or ran here; raises UserError if there is nothing to draw."""
    folder = job_dirs.existing(job)
    status, events = status_of(folder.name), saved_events(folder.name)
    timed = [(at, event) for event in events if (at := _unix(event.get("time"))) is not None]
    now = time() if job_dirs.is_running(folder.name) else None
    return timeline(status, timed, list(moments(folder / "progress.jsonl")), _losses(folder), now)


def timeline(
    status: dict[str, Any],
    events: Sequence[tuple[float, dict[str, Any]]],
    progress: Sequence[dict[str, Any]],
    losses: Points,
    now: float | None,
) -> Timeline:
    """The timeline from its parts. `now` is the time if the job runs; else it ended with the last record."""
    times = [at for at, _ in events] + [moment["time"] for moment in progress] + [at for at, _ in losses]
    if not times:
        raise UserError(f"{status['job']} has no records yet: it is starting, or ended before it could begin")
    began = min(times)
    end = max([*times, now or 0.0]) - began
    marks = sorted(_marks(status["faults"], began), key=lambda mark: mark.at)
    samples = list(_samples(progress, began))
    if status.get("seats"):
        spans = list(_of_members(samples, end))
    else:
        spans = list(_of_generations(events, samples, [mark.at for mark in marks], began, end))
    if not spans and not samples and not marks:
        raise UserError(f"{status['job']} has not started a generation yet, so there is nothing to draw")
    return Timeline(
        job=str(status["job"]), phase=str(status["phase"]), began=began, end=max(end, 1.0), step=int(status["step"]),
        steps=_steps(samples), losses=[(at - began, loss) for at, loss in losses], spans=spans, faults=marks,
    )  # fmt: skip


# -- what the files say -----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    generation: str
    members: int
    step: int
    stepped_at: float | None


def _unix(stamp: object) -> float | None:
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return None


def _samples(progress: Iterable[dict[str, Any]], began: float) -> Iterator[_Sample]:
    for moment in progress:
        step, stepped, members = moment.get("step"), moment.get("stepped_at"), moment.get("members")
        if isinstance(step, int) and isinstance(members, int) and isinstance(stepped, int | float | None):
            at = None if stepped is None else max(0.0, stepped - began)
            yield _Sample(moment["time"] - began, str(moment.get("generation")), members, step, at)


def _losses(folder: Path) -> Points:
    """The recorded losses, without those of a rank just before a lower rank was read: the losses of one rank make the
    curve."""
    found = [
        (float(each["time"]), float(each["loss"]), each["by"])
        for each in moments(folder / "loss.jsonl")
        if isinstance(each.get("loss"), int | float) and isinstance(each.get("by"), int) and isfinite(each["loss"])
    ]
    return [
        (at, loss)
        for i, (at, loss, by) in enumerate(found)
        if i + 1 == len(found) or found[i + 1][2] >= by or found[i + 1][0] - at > SILENT
    ]


def _marks(faults: Iterable[dict[str, Any]], began: float) -> Iterator[Mark]:
    for fault in faults:
        if (at := _unix(fault["time"])) is not None:
            yield Mark(max(0.0, at - began), at, str(fault["reason"]), fault["seconds_lost"])


# -- worlds -----------------------------------------------------------------------------------------------------------
def _of_generations(
    events: Iterable[tuple[float, dict[str, Any]]],
    samples: Sequence[_Sample],
    faults: Sequence[float],
    began: float,
    end: float,
) -> Iterator[Span]:
    """Each generation begins when its first member gets its Start. It ends with the first fault after it was last seen
    running, else when the next generation begins or the job ends."""
    begins: dict[str, tuple[float, int]] = {}
    over = end
    for at, event in events:
        if event["kind"] == "GenerationStarted":
            begins.setdefault(event["generation"], (at - began, _whole(event["detail"].get("group_world_size"))))
        elif event["kind"] in ("JobSucceeded", "JobFailed", "JobStopped"):
            over = min(end, at - began)
    seen = {sample.generation: sample.at for sample in samples if sample.members}
    following = [at for at, _ in begins.values()][1:]
    for (generation, (begin, members)), ends in zip(begins.items(), [*following, over], strict=False):
        ended = (at for at in faults if max(begin, seen.get(generation, begin)) <= at < ends)
        yield Span(begin, max(begin, min(ended, default=ends)), members, generation)


def _whole(text: object) -> int:
    return int(str(text)) if str(text).isdigit() else 0


def _of_members(samples: Sequence[_Sample], end: float) -> Iterator[Span]:
    """The spans of a PS job: each is the time in which the same number of members ran."""
    begin = 0
    for i, sample in enumerate(samples):
        is_last = i + 1 == len(samples)
        if is_last or samples[i + 1].members != sample.members:
            if sample.members:
                yield Span(samples[begin].at, end if is_last else samples[i + 1].at, sample.members)
            begin = i + 1


# -- steps ------------------------------------------------------------------------------------------------------------
def _steps(samples: Sequence[_Sample]) -> Points:
    """The time of each recorded step, and points that show that there was none in between."""
    points: Points = []
    for before, sample, after in zip([None, *samples], samples, [*samples[1:], None], strict=False):
        if sample.stepped_at is None:
            continue
        at = sample.stepped_at
        if before is not None and before.step == sample.step:
            at = sample.at  # members report once a second, so the next step may have been made by then
            at = min(at, after.stepped_at) if after and after.stepped_at and after.step > sample.step else at
        points.append((max(at, points[-1][0]) if points else at, float(sample.step)))
    return points


def rates(steps: Points, bins: int = BINS) -> list[tuple[float, float, float]]:
    """(from, to, steps per second) for intervals of at least one second."""
    if not steps or steps[-1][0] <= steps[0][0]:
        return []
    begin, end = steps[0][0], steps[-1][0]
    count = max(1, min(bins, int(end - begin)))
    edges = [begin + (end - begin) * i / count for i in range(count + 1)]
    made = [_at(steps, edge) for edge in edges]
    return [(a, b, (high - low) / (b - a)) for a, b, low, high in zip(edges, edges[1:], made, made[1:], strict=False)]


def _at(steps: Points, at: float) -> float:
    i = bisect_right(steps, (at, float("inf")))
    if i in (0, len(steps)):
        return steps[min(i, len(steps) - 1)][1]
    (t0, s0), (t1, s1) = steps[i - 1], steps[i]
    return s0 + (s1 - s0) * (at - t0) / (t1 - t0)


def smoothed(losses: Points, over: int = SMOOTHED) -> Points:
    """The mean of a few losses around each loss; of fewer if the record is short."""
    beside, values = min(over, len(losses) // 8) // 2, [loss for _, loss in losses]
    return [(at, fmean(values[max(0, i - beside) : i + beside + 1])) for i, (at, _) in enumerate(losses)]
