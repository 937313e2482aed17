"""One job, as its documents describe it together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.report import history
from outrider.report.documents import Amounts, Curve, Event, Part, Status
from outrider.report.history import Case, Timeline
from outrider.report.reading import Reader, clean

LONGEST_NOTE = 500
OVER = ("succeeded", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class Sources:
    """What a report is made of: any JSON, of which nothing is known."""

    status: Any
    """A status document, or an ElasticJob."""
    parts: Sequence[tuple[str, Any]] = ()
    """The parts of the history, each with its name."""
    events: Sequence[Any] = ()
    problems: Sequence[str] = ()
    """Sentences about documents that could not be had."""
    where: str = "this machine"


@dataclass(frozen=True, slots=True)
class Job:
    status: Status
    timeline: Timeline
    cases: tuple[Case, ...]
    events: tuple[Event, ...]
    notes: tuple[str, ...]
    """Sentences about what is wrong, missing or merged."""
    began: float | None
    until: float | None
    """Unix times of the beginning, and of the end or the last that is known."""
    account: Amounts = field(default_factory=dict)
    """The seconds of all members by cause."""
    where: str = ""
    numbers: tuple[Curve, ...] = ()
    """Those of the log over time."""

    @property
    def duration(self) -> float:
        return 0.0 if self.began is None or self.until is None else max(0.0, self.until - self.began)

    @property
    def wall(self) -> float:
        """The seconds of all members."""
        return sum(self.account.values())

    @property
    def members(self) -> float:
        """The mean number of desired members; 0 if it is not known."""
        return self.wall / self.duration if self.duration else 0.0

    def share(self, cause: str) -> float:
        return self.account.get(cause, 0.0) / self.wall if self.wall else 0.0

    def each(self, cause: str) -> float:
        """The seconds of the job that its members spent on a cause, in the mean."""
        return self.share(cause) * self.duration


def job_of(sources: Sources, now: float) -> Job:
    """Reads the documents of a job at a Unix time."""
    reader = Reader()
    status = reader.status(sources.status)
    read = [reader.part(name, document) for name, document in sources.parts]
    parts = sorted((part for part in read if part is not None), key=lambda part: part.term)
    events = reader.events(list(sources.events)) or tuple(event for part in parts for event in part.events)
    notes = [clean(problem)[:LONGEST_NOTE] for problem in sources.problems]
    timeline = history.joined(parts, notes)
    cases = history.cases_of(status, parts, events, notes)
    if not parts:
        notes.append(
            "There is no history of this job: an older release ran it, it was only observed, or it ended before one "
            "was written. The report has what the status has."
        )
    times = [at for at in (*(event.at for event in events), *(case.fault.at for case in cases)) if at > 0]
    began = timeline.began if timeline.began > 0 else min(times, default=None)
    until = max([part.until for part in parts] + times, default=None)
    if began is not None and status.phase not in OVER:
        until = now
    account = status.time or _account(timeline)
    if not status.time:
        notes.append(
            "The status has no time account: "
            + (
                "the one below is made from the timeline."
                if account
                else "an older release wrote it, or it did not begin."
            )
        )
    return Job(
        status, timeline, tuple(cases), events, tuple(dict.fromkeys([*notes, *reader.problems])), began, until, account,
        clean(sources.where), _numbers(parts),
    )  # fmt: skip


def _numbers(parts: Sequence[Part]) -> tuple[Curve, ...]:
    """The curves of all masters, each as one."""
    found: dict[str, list[Curve]] = {}
    for curve in (curve for part in parts for curve in part.numbers if curve.points):
        found.setdefault(curve.name, []).append(curve)
    return tuple(_joined(name, curves) for name, curves in found.items())


def _joined(name: str, curves: Sequence[Curve]) -> Curve:
    points = sorted({point for curve in curves for point in curve.points})
    values = [point.value for point in points]
    lows, highs = [curve.low for curve in curves], [curve.high for curve in curves]
    low = min([*values, *(each for each in lows if each is not None)])
    return Curve(name, tuple(points), low, max([*values, *(each for each in highs if each is not None)]))


def _account(timeline: Timeline) -> Amounts:
    """The account that the timeline shows, if it shows every rank index."""
    found: Amounts = {}
    for row in timeline.rows:
        seats = sum(last - first + 1 for first, last in row.indexes)
        for cause, tenths in history.spent(row).items():
            name = timeline.causes[cause]
            if name:
                found[name] = found.get(name, 0.0) + seats * tenths / 10
    return found
