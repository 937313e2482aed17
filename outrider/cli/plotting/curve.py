"""Shows the throughput that automatic scaling has measured at each size, and its decisions, as tables or a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from outrider.cli.errors import UserError
from outrider.cli.plotting import picture as plotting_picture
from outrider.cli.tables import columns
from outrider.cli.text import local_time, plural

BAR = 40
"""The width of a bar in characters."""


def scaling_of(document: dict[str, Any]) -> dict[str, Any]:
    found = document.get("scaling")
    if not isinstance(found, dict):
        raise UserError(f"{document['job']} has no automatic scaling: it was started without --scaling")
    return found


def shown(scaling: dict[str, Any]) -> RenderableType:
    """The measured curve, samples per second over members (or `counted`), and the decisions."""
    state = "continues" if scaling["continue"] else "is over for now"
    again = f"; next evaluation {local_time(scaling['next_evaluation'])}" if scaling["next_evaluation"] else ""
    head = Text(
        f"{plural(scaling['current'], counted(scaling)[:-1])}, {scaling['condition']}; the search {state}{again}"
    )
    return Group(head, Text(scaling["message"]), _sizes(scaling), _decisions(scaling))


def counted(scaling: dict[str, Any]) -> str:
    return str(scaling.get("counted", "members"))


def _sizes(scaling: dict[str, Any]) -> Table:
    table = columns(counted(scaling), "samples/s", "±", "steps", "")
    most = max((each["samples_per_second"] for each in scaling["sizes"]), default=1.0)
    for each in scaling["sizes"]:
        rate, is_current = each["samples_per_second"], each["members"] == scaling["current"]
        bar = ProgressBar(total=most, completed=rate, width=BAR, complete_style="green" if is_current else "blue")
        table.add_row(f"{each['members']}", f"{rate:,.4g}", f"{each['error']:.2g}", f"{each['steps']:,}", bar)
    return table


def _decisions(scaling: dict[str, Any]) -> Table:
    table = columns("time", counted(scaling), "reason")
    for each in scaling["decisions"]:
        table.add_row(local_time(each["time"]), str(each["members"]), Text(each["reason"]))
    return table


def plotted(scaling: dict[str, Any], name: str, path: Path) -> None:
    """Write the curve with its standard errors, and linear growth beside it, to a file."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise plotting_picture.missing() from error
    sizes = scaling["sizes"]
    if not sizes:
        raise UserError(f"{name} has not measured any size yet")
    members, rates = [each["members"] for each in sizes], [each["samples_per_second"] for each in sizes]
    figure = Figure(figsize=(7, 4), layout="tight")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.errorbar(members, rates, [each["error"] for each in sizes], marker="o", capsize=3, label="measured")
    if members[0]:  # a job with only a master has 0 workers
        axes.plot(members, [rates[0] / members[0] * size for size in members], "--", color="grey", label="linear")
    axes.axvline(scaling["current"], color="green", alpha=0.4, label="now")
    axes.set(xlabel=counted(scaling), ylabel="samples/s", title=f"{name}: {scaling['condition']}", ylim=(0, None))
    axes.legend()
    plotting_picture.save(figure, path)
