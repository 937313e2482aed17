"""What is drawn of a job: bars, the timeline's data for `timeline.js`, and a still picture of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from outrider.report.documents import Point
from outrider.report.history import Row, Timeline, reduced, shown
from outrider.report.job import Job
from outrider.report.words import CAUSES, STAGES

OF_STAGE: Final = {
    "detect": "detecting", "stop": "stopping", "wait": "waiting", "start": "starting", "import": "importing",
    "rendezvous": "rendezvous", "load": "loading", "first_step": "first_step", "new_step": "repeated_steps",
}  # fmt: skip
"""The cause whose colour a stage has."""
STILL_ROWS, STILL_SPANS, ROW_HEIGHT = 64, 4000, 5
MOST_POINTS = 400
"""The most points of a curve that are drawn."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a stacked bar; `left` and `width` in percent."""

    name: str
    colour: str
    what: str
    seconds: float
    share: float
    left: float

    @property
    def width(self) -> float:
        return 100 * self.share


def colour(cause: str) -> str:
    """The class that has the colour of a cause; one that this release does not know is grey."""
    return f"c-{cause}" if cause in CAUSES else "c-none" if not cause else "c-other"


def account(amounts: Mapping[str, float]) -> list[Piece]:
    """The time account as a stacked bar, productive time first, then the greatest."""
    ordered = sorted(amounts.items(), key=lambda each: (each[0] != "productive", -each[1]))
    return list(
        _pieces((name, colour(name), CAUSES.get(name, "not known to this release"), each) for name, each in ordered)
    )


def stages(amounts: Mapping[str, float]) -> list[Piece]:
    """The stages of a recovery as a stacked bar, in their order."""
    ordered = [name for name in STAGES if name in amounts] + [name for name in amounts if name not in STAGES]
    return list(
        _pieces(
            (name, colour(OF_STAGE.get(name, "other")), STAGES.get(name, "not known to this release"), amounts[name])
            for name in ordered
        )
    )


def _pieces(parts: Iterator[tuple[str, str, str, float]]) -> Iterator[Piece]:
    listed = list(parts)
    total = sum(each for *_, each in listed) or 1.0
    left = 0.0
    for name, its_colour, what, each in listed:
        yield Piece(name, its_colour, what, each, each / total, left)
        left += 100 * each / total


# -- the timeline -------------------------------------------------------------------------------------------------
def data(job: Job) -> Markup:
    """The timeline as JSON for a script element, in which `<` and `&` do not occur."""
    timeline = job.timeline
    names: dict[str, int] = {}
    document: dict[str, Any] = {
        "began": round(timeline.began, 3),
        "end": timeline.end,
        "causes": [[cause, colour(cause)] for cause in timeline.causes],
        "rows": [
            [shown(row.indexes), [[a, b] for a, b in row.indexes[:50]], _flat(row), row.end] for row in timeline.rows
        ],
        "generations": [list(each) for each in timeline.generations],
        "holders": [
            [
                each.at,
                each.rank_index,
                names.setdefault(each.member, len(names)),
                names.setdefault(each.node, len(names)),
            ]
            for each in timeline.holders
        ],
        "faults": [
            [round(10 * (case.fault.at - timeline.began)), number, case.fault.kind, case.fault.rank_index]
            for number, case in enumerate(job.cases, 1)
        ],
    }
    document["names"] = list(names)
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _flat(row: Row) -> list[int]:
    """`[time since the one before, cause, …]`, which is half as long as pairs of times and causes."""
    found, last = [], 0
    for at, cause in row.spans:
        found += [at - last, cause]
        last = at
    return found


@dataclass(frozen=True, slots=True)
class Still:
    """A picture of the timeline, 1000 wide."""

    height: int
    paths: list[tuple[str, str]]
    """Of each cause: its colour, and the path of its spans."""
    generations: list[float]
    faults: list[float]
    note: str


def legend(timeline: Timeline) -> list[tuple[str, str]]:
    """The causes that occur in the timeline, each with its colour."""
    found = {cause for row in timeline.rows for _, cause in row.spans}
    return [(name, colour(name)) for number, name in enumerate(timeline.causes) if name and number in found]


def still(job: Job) -> Still:
    timeline = job.timeline
    notes: list[str] = []
    rows = reduced(timeline.rows, STILL_ROWS, STILL_SPANS, notes)
    paths: dict[str, list[str]] = {}
    scale = 1000 / max(1, timeline.end)
    for number, row in enumerate(rows):
        y = number * ROW_HEIGHT + ROW_HEIGHT / 2
        for (at, cause), until in zip(row.spans, [*(at for at, _ in row.spans[1:]), row.end], strict=True):
            if timeline.causes[cause]:
                drawn = f"M{at * scale:.1f} {y:g}h{max(0.4, (until - at) * scale):.1f}"
                paths.setdefault(colour(timeline.causes[cause]), []).append(drawn)
    order = {colour(cause): place for place, cause in enumerate(timeline.causes)}
    return Still(
        height=len(rows) * ROW_HEIGHT,
        paths=[(name, "".join(paths[name])) for name in sorted(paths, key=lambda name: order[name])],
        generations=[each.at * scale for each in timeline.generations[:200]],
        faults=[place for case in job.cases if 0 <= (place := _place(timeline, case.fault.at)) <= 1000],
        note=" ".join(notes),
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """A number of the log over time: a path in a box 1000 wide and 100 high, from its lowest to its highest value."""

    name: str
    path: str
    low: float
    high: float
    newest: float
    begin: float
    end: float


def curves(job: Job) -> list[Curve]:
    """The numbers that have two points at least."""
    return [_curve(each.name, each.points, each.low or 0.0, each.high or 0.0)
            for each in job.numbers if len(each.points) > 1]  # fmt: skip


def _curve(name: str, points: Sequence[Point], low: float, high: float) -> Curve:
    every = -(-len(points) // MOST_POINTS)
    kept = points[::-every][::-1]
    (begin, _), (end, newest) = kept[0], kept[-1]
    across, up = 1000 / max(0.1, end - begin), 100 / (high - low or 1.0)
    path = " ".join(f"{(at - begin) * across:.1f} {100 - (value - low) * up:.1f}" for at, value in kept)
    return Curve(name, f"M{path}", low, high, newest, begin, end)


def _place(timeline: Timeline, at: float) -> float:
    return 10 * (at - timeline.began) * 1000 / max(1, timeline.end)
