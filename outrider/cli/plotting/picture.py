"""Draws the timeline of a job: loss, steps per second and generations over one time axis, with faults across them.

Panels without data are left out. A fault has a number above its line and its reason in a list below, because reasons
beside the lines would overlap. Numbers of faults that are close together are moved apart as little as possible, and
reasons are cut to the width of their column as the renderer measures it. So no text touches another text or the frame,
however many faults there are. If there are more than fit, those that cost the most have a number, the others only a
line.
"""

from __future__ import annotations

import datetime
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.cli.errors import UserError
from outrider.cli.plotting.timeline import Mark, Points, Span, Timeline, rates, smoothed
from outrider.cli.text import plural, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

WIDTH, LEFT, RIGHT = 11.0, 0.85, 0.3
"""Width of the picture, and of its left and right margin, in inches like all lengths here."""
TITLE, NUMBERS, GAP, UNDER, ROW = 0.4, 0.3, 0.16, 0.66, 0.185
LOSS, RATE, WORLDS = 2.4, 1.6, 0.3
DPI = 120
NUMBERED = 36
"""The most faults with a number."""
APART = 0.235
"""The least distance between the centres of two numbers."""
SMALL = 8
UNITS = (
    (120.0, 1.0, "seconds"),
    (7200.0, 60.0, "minutes"),
    (259200.0, 3600.0, "hours"),
    (float("inf"), 86400.0, "days"),
)
"""The longest job (s) for a unit of the time axis, the length of the unit (s), and its name."""
FAULT, LINE, WORLD = "tab:red", "tab:blue", ("#7fb38a", "#a9cfb1")


def figure_of(timeline: Timeline) -> Figure:
    """The picture of a timeline; raises UserError if matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise missing() from error
    figure = Figure(dpi=DPI)
    FigureCanvasAgg(figure)
    _Picture(figure, timeline).draw()
    return figure


def missing() -> UserError:
    return UserError("matplotlib is not installed: pip install matplotlib")


def save(figure: Figure, path: Path) -> None:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from")  # error messages may be in any script
            figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be written: {error}") from error


class _Picture:
    def __init__(self, figure: Figure, timeline: Timeline) -> None:
        self._figure, self._timeline = figure, timeline
        self._unit, self._unit_name = next((unit, name) for most, unit, name in UNITS if timeline.end <= most)
        self._rates = rates(timeline.steps)
        self._numbered = _numbered(timeline.faults)

    def draw(self) -> None:
        timeline = self._timeline
        panels = [(self._loss, LOSS)] if timeline.losses else []
        panels += [(self._rate, RATE)] if self._rates else []
        panels += [(self._worlds, WORLDS)]
        rows, columns = self._list_size()
        numbers = NUMBERS if self._numbered else 0.0
        height = TITLE + numbers + sum(size + GAP for _, size in panels) - GAP + UNDER + ROW * rows
        self._figure.set_size_inches(WIDTH, height)
        top = height - TITLE - numbers
        drawn = []
        for draw, size in panels:
            axes = self._axes(top - size, size)
            draw(axes)
            drawn.append(axes)
            top -= size + GAP
        for axes in drawn:
            axes.set_xlim(0, timeline.end / self._unit)
            self._across(axes, shaded=axes is not drawn[-1])
            axes.tick_params(labelsize=SMALL, labelbottom=axes is drawn[-1])
        began = datetime.datetime.fromtimestamp(timeline.began).strftime("%Y-%m-%d %H:%M:%S")
        drawn[-1].set_xlabel(f"{self._unit_name} since {began}", fontsize=SMALL + 1)
        self._title(height)
        self._place_numbers(height - TITLE - numbers)
        self._list(rows, columns)

    def _axes(self, bottom: float, size: float) -> Axes:
        width, height = self._figure.get_size_inches()
        return self._figure.add_axes((LEFT / width, bottom / height, (width - LEFT - RIGHT) / width, size / height))

    # -- panels -------------------------------------------------------------------------------------------------------
    def _loss(self, axes: Axes) -> None:
        losses = self._timeline.losses
        axes.plot(*self._xy(losses), ".", markersize=3, color=LINE, alpha=0.35)
        for part in _parts(losses, [span.begin for span in self._timeline.spans]):
            axes.plot(*self._xy(smoothed(part)), color=LINE, linewidth=1.3)
        values = [loss for _, loss in losses]
        if min(values) > 0 and max(values) > 10 * min(values):
            axes.set_yscale("log")
        self._label(axes, "loss")

    def _rate(self, axes: Axes) -> None:
        edges = [begin / self._unit for begin, _, _ in self._rates] + [self._rates[-1][1] / self._unit]
        axes.stairs([rate for _, _, rate in self._rates], edges, color=LINE, fill=True, alpha=0.25, linewidth=0)
        axes.stairs([rate for _, _, rate in self._rates], edges, color=LINE, linewidth=1.3)
        axes.set_ylim(0, 1.1 * max(max(rate for _, _, rate in self._rates), 1e-9))
        self._label(axes, "new steps/s")

    def _label(self, axes: Axes, text: str) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

        logarithmic = axes.get_yscale() == "log"
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6) if logarithmic else MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.25)
        self._beside(axes, text)

    def _worlds(self, axes: Axes) -> None:
        axes.set(ylim=(0, 1), yticks=[])
        self._beside(axes, "members")
        most = max((span.members for span in self._timeline.spans), default=1) or 1
        for i, span in enumerate(self._timeline.spans):
            begin, end = span.begin / self._unit, span.end / self._unit
            height = 0.35 + 0.65 * span.members / most
            axes.bar(begin, height, end - begin, align="edge", color=WORLD[i % 2], linewidth=0)
        axes.set_xlim(0, self._timeline.end / self._unit)
        for span in self._timeline.spans:
            middle = (span.begin + span.end) / 2 / self._unit
            label = axes.text(middle, 0.17, "", fontsize=SMALL, ha="center", va="bottom")
            left, right = (axes.transData.transform((at / self._unit, 0))[0] for at in (span.begin, span.end))
            for words in _names(span):
                label.set_text(words)
                if label.get_window_extent().width + 4 <= right - left:
                    break

    def _beside(self, axes: Axes, text: str) -> None:
        """The name of a panel, always at the same place."""
        box = axes.get_position()
        at = (0.16 / WIDTH, (box.y0 + box.y1) / 2)
        if text == "members":
            self._text(LEFT / WIDTH - 0.08 / WIDTH, at[1], text, size=SMALL + 1, ha="right", va="center")
        else:
            self._text(*at, text, size=SMALL + 1, rotation=90, ha="center", va="center")

    def _xy(self, points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
        return [at / self._unit for at, _ in points], [value for _, value in points]

    # -- faults -------------------------------------------------------------------------------------------------------
    def _across(self, axes: Axes, shaded: bool) -> None:
        """Draw the faults across a panel. In the panel of members, lost time is a gap instead of a shaded area."""
        many = len(self._timeline.faults) > NUMBERED
        for mark in self._timeline.faults:
            at = mark.at / self._unit
            axes.axvline(at, color=FAULT, linewidth=0.5 if many else 0.9, alpha=0.5 if many else 0.8)
            if shaded and mark.seconds_lost:
                axes.axvspan(at, at + mark.seconds_lost / self._unit, color=FAULT, alpha=0.15, linewidth=0)

    def _place_numbers(self, bottom: float) -> None:
        from matplotlib.lines import Line2D

        width, height = self._figure.get_size_inches()
        begins = [LEFT + (width - LEFT - RIGHT) * min(1.0, mark.at / self._timeline.end) for mark in self._numbered]
        for number, (begin, at) in enumerate(zip(begins, spread(begins, APART, LEFT, width - RIGHT), strict=True), 1):
            way = (
                [begin / width, at / width, at / width],
                [bottom / height, (bottom + 0.08) / height, (bottom + 0.12) / height],
            )
            self._figure.add_artist(Line2D(*way, color=FAULT, linewidth=0.7, alpha=0.8))
            self._text(at / width, (bottom + 0.2) / height, str(number), color=FAULT, weight="bold", ha="center")

    def _list_size(self) -> tuple[int, int]:
        """Rows and columns of the list of faults, with a row for the number of faults that it leaves out."""
        columns = 1 if len(self._numbered) <= 8 else 2
        rest = len(self._timeline.faults) > len(self._numbered)
        return -(-len(self._numbered) // columns) + rest + (1 if self._numbered else 0), columns

    def _list(self, rows: int, columns: int) -> None:
        width, height = self._figure.get_size_inches()
        left, wide = 0.3, (width - 0.3 - RIGHT) / columns
        each = -(-len(self._numbered) // columns)
        for i, mark in enumerate(self._numbered):
            x, y = left + wide * (i // each), (rows - 0.5 - i % each) * ROW
            self._text((x + 0.2) / width, y / height, str(i + 1), color=FAULT, weight="bold", ha="right")
            self._fitted((x + 0.3) / width, y / height, self._sentence(mark), (wide - 0.5) * DPI)
        if rest := len(self._timeline.faults) - len(self._numbered):
            text = f"and {plural(rest, 'more fault')}"
            self._text((left + 0.3) / width, (rows - 0.5 - each) * ROW / height, text)

    def _sentence(self, mark: Mark) -> str:
        lost = "no step since" if mark.seconds_lost is None else f"{seconds(mark.seconds_lost)} lost"
        when = datetime.datetime.fromtimestamp(mark.clock)
        clock = when.strftime("%d %b %H:%M" if self._timeline.end > 86400 else "%H:%M:%S")
        return f"{clock}  {lost}:  {' '.join(mark.reason.split())}"

    # -- text ---------------------------------------------------------------------------------------------------------
    def _title(self, height: float) -> None:
        timeline, parts = self._timeline, []
        parts.append(plural(timeline.step, "step") if timeline.step else "no step")
        generations = len({span.generation for span in timeline.spans} - {""})
        parts += [plural(generations, "generation")] if generations else []
        lost = sum(mark.seconds_lost or 0.0 for mark in timeline.faults)
        parts.append(plural(len(timeline.faults), "fault") + (f", {seconds(lost)} lost" if lost else ""))
        text = f"{timeline.job}: {timeline.phase} · {' · '.join(parts)}"
        room = (WIDTH - LEFT - RIGHT) * DPI
        self._fitted(LEFT / WIDTH, (height - 0.22) / height, text, room, size=11)

    def _fitted(self, x: float, y: float, words: str, room: float, **style: Any) -> None:
        """Draw a text, cut to a width of `room` pixels."""
        text = self._text(x, y, words, **style)
        if text.get_window_extent().width <= room:
            return

        def is_too_long(length: int) -> bool:
            text.set_text(words[:length].rstrip() + "…")
            return bool(text.get_window_extent().width > room)

        is_too_long(bisect_left(range(len(words)), True, key=is_too_long) - 1)

    def _text(self, x: float, y: float, words: str, **style: Any) -> Text:
        style = {"fontsize": style.pop("size", SMALL), "va": "center", "parse_math": False} | style
        return self._figure.text(x, y, words, **style)


def _names(span: Span) -> list[str]:
    """Names of a generation for its bar, from the longest to an empty one."""
    members = plural(span.members, "member")
    whole = [f"generation {span.generation}, {members}"] if span.generation else []
    return [*whole, members, str(span.members), ""]


def _parts(points: Points, at: Iterable[float]) -> Iterator[Points]:
    """The points in parts, cut at these times, so that no line crosses a time without training."""
    times, begin = [time for time, _ in points], 0
    for cut in [*(bisect_left(times, each) for each in at), len(points)]:
        if cut > begin:
            yield points[begin:cut]
            begin = cut


def _numbered(faults: Sequence[Mark]) -> list[Mark]:
    """The faults that cost the most, in order of time; one that still costs time counts most."""
    costs = sorted(faults, key=lambda mark: float("inf") if mark.seconds_lost is None else mark.seconds_lost)
    kept = {id(mark) for mark in costs[-NUMBERED:]}
    return [mark for mark in faults if id(mark) in kept]


def spread(places: Iterable[float], apart: float, least: float, most: float) -> list[float]:
    """Ordered positions, moved apart as little as possible and kept within bounds: isotonic regression of the positions
    minus the required distances (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for i, place in enumerate(places):
        pools.append((place - i * apart, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (second, n), (first, m) = pools.pop(), pools.pop()
            pools.append(((first * m + second * n) / (m + n), m + n))
    moved = [mean for mean, count in pools for _ in range(count)]
    highest = most - (len(moved) - 1) * apart
    return [min(max(mean, least), highest) + i * apart for i, mean in enumerate(moved)]
