"""`outrider status [JOB] [--json]`: shows the state of a job as a table, or as JSON (docs/reference/status.md).

For a job of a cluster it shows only the measurements and decisions of automatic scaling.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.cli import job_dirs
from outrider.cli.documents import status_of
from outrider.cli.errors import UserError
from outrider.cli.kube import job as kube_job
from outrider.cli.plotting.curve import scaling_of, shown
from outrider.cli.tables import UNBOUNDED, columns, console
from outrider.cli.text import STYLES, local_time, percent, plural, printable, seconds, time_account
from outrider.master.core.scaling import log_metric_values

FAULTS_SHOWN, DATA_SHOWN = 10, 5
MEMBER_COLUMNS: dict[str, Callable[[dict[str, Any]], str | Text]] = {
    "member": lambda member: member["id"],
    "rank index": lambda member: "-" if member["rank_index"] is None else str(member["rank_index"]),
    "state": lambda member: _coloured(member["state"]),
    "mode": lambda member: member["mode"] or "-",
    "step": lambda member: f"{member['step']:,}",
    "cpu": lambda member: f"{member['cpu']:.2f}",
    "MiB": lambda member: f"{member['memory_mib']:,.0f}",
    "gpus": lambda member: str(member["gpus"]),
    "sidecar": lambda member: _pids(member, "sidecar"),
    "trainer": lambda member: _pids(member, "trainer"),
    "workers": lambda member: _pids(member, "workers"),
}
MISSED_FIRST = ("workers", "trainer", "sidecar", "gpus", "mode", "rank index", "MiB", "cpu")
"""The columns that a narrow terminal does not show, the first first."""


@click.command()
@click.argument("job", required=False)
@click.option("--scaling", is_flag=True, help="Show the measurements and decisions of a job with --scaling.")
@click.option("--cluster", is_flag=True, help="Show --scaling of the ElasticJob JOB in kubectl's cluster.")
@click.option("-n", "--namespace", metavar="NS", help="Namespace of the ElasticJob. Default: of kubectl's context.")
@click.option("--json", "as_json", is_flag=True, help="Print the JSON document instead of a table.")
def status(job: str | None, as_json: bool, scaling: bool, cluster: bool, namespace: str | None) -> None:
    """Show the state of JOB. Default: the only running job; if there is not exactly one, all jobs."""
    if cluster or namespace:
        if job is None or not scaling:
            raise UserError(
                "--cluster: must be used with --scaling and JOB; for other fields: kubectl describe elasticjob JOB"
            )
        _show_scaling(kube_job.scaling_of(job, namespace), as_json)
        return
    running = job_dirs.running_jobs()
    if job is None and len(running) != 1 and scaling:
        raise UserError(f"JOB: must be given with --scaling; jobs: {', '.join(job_dirs.jobs()) or 'none'}")
    if job is None and len(running) != 1:
        _show_all(as_json)
        return
    document = status_of(running[0] if job is None else job)
    if scaling:
        _show_scaling(scaling_of(document), as_json)
    elif as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        _show(document)


def _show_scaling(scaling: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(scaling, indent=2))
    else:
        console().print(shown(scaling))


def _show_all(as_json: bool) -> None:
    documents = [document for job in job_dirs.jobs() if (document := _status_or_none(job))]
    if as_json:
        click.echo(json.dumps({"version": 1, "jobs": documents}, indent=2))
        return
    if not documents:
        click.echo(f"no jobs in {job_dirs.home()}")
        return
    table = columns("job", "phase", "generation", "world", "step", "restarts", "faults", "goodput")
    for document in documents:
        table.add_row(
            document["job"],
            _coloured(document["phase"]),
            str(document["generation"]),
            str(document["world"]),
            f"{document['step']:,}",
            str(document["restarts"]),
            str(len(document["faults"])),
            percent(document.get("goodput")),
        )
    console().print(table)


def _status_or_none(job: str) -> dict[str, Any] | None:
    try:
        return status_of(job)
    except UserError:
        return None


def _show(document: dict[str, Any]) -> None:
    screen = console()
    screen.print(_headline(document))
    if document.get("message"):
        screen.print(Text(printable(document["message"])))
    if spent := time_account(document):
        screen.print(Text(f"time account: {spent}", style="dim"))
    if document.get("seats"):
        screen.print(_seats(document["seats"]))
    if document["members"]:
        screen.print(_members(document["members"], screen))
    for mode, why in sorted(_modes(document).items()):
        screen.print(Text(f"{mode}: {why}", style="dim"))
    if document.get("node_check"):
        screen.print(_node_check(document["node_check"]))
    if document.get("metrics"):
        screen.print(_metrics(document["metrics"]))
    for row in document.get("stragglers", ()):
        screen.print(Text(row["reason"], style="yellow"))
    if document.get("straggler_watch"):
        screen.print(Text(f"stragglers: {document['straggler_watch']}", style="dim"))
    for note in document.get("data", {}).get("notes", ())[-DATA_SHOWN:]:
        screen.print(Text(f"{note['kind']} (generation {note['generation']}): {note['sentence']}", style="dim"))
    for member, why in document.get("non_atomic_saves", {}).items():
        screen.print(Text(f"CheckpointsNotAtomic: {member}: {why}", style="yellow"))
    if repeated := document.get("data", {}).get("samples_repeated"):
        screen.print(Text(f"{repeated:,} samples were used more than once after resumes", style="yellow"))
    if document["faults"]:
        screen.print(_faults(document["faults"]))


def _headline(document: dict[str, Any]) -> Text:
    line = Text()
    line.append(document["job"], style="bold").append(" is ").append(_coloured(document["phase"]))
    if seats := document.get("seats"):
        line.append(f": {document['world']} of {plural(len(seats), 'member')}, ")
    else:
        line.append(f": generation {document['generation']}, {plural(document['world'], 'rank')}, ")
    line.append(f"step {'about ' if document.get('step_estimated') else ''}{document['step']:,}, ")
    if repeated := document.get("steps_repeated"):
        line.append(f"{plural(repeated, 'step')} repeated, ")
    line.append(f"{plural(document['restarts'], 'restart')}, goodput {percent(document.get('goodput'))}")
    return line


def _pids(member: dict[str, Any], of: str) -> str:
    found = member.get("pids", {}).get(of)
    return (" ".join(map(str, found)) if isinstance(found, list | tuple) else str(found or "")) or "-"


def _modes(document: dict[str, Any]) -> dict[str, str]:
    """The reason for each supervision mode, once for all members with this mode."""
    return {member["mode"]: member["mode_reason"] for member in document["members"] if member.get("mode_reason")}


def _members(members: list[dict[str, Any]], screen: Console) -> Table:
    """A row for each member, without as many of the columns that can be missed as do not fit the terminal."""
    missed, unbounded = list(reversed(MISSED_FIRST)), screen.options.update(max_width=UNBOUNDED)
    while True:
        shown = [name for name in MEMBER_COLUMNS if name not in MISSED_FIRST or name in missed]
        table = columns(*shown)
        for member in members:
            table.add_row(*(MEMBER_COLUMNS[name](member) for name in shown))
        if not missed or screen.measure(table, options=unbounded).maximum <= screen.width:
            return table
        missed.pop()


def _seats(seats: list[dict[str, Any]]) -> Table:
    """The tasks of a job with parameter servers: address, member, generation and phase."""
    table = columns("role", "rank index", "address", "member", "generation", "phase")
    for seat in seats:
        table.add_row(
            seat["role"],
            str(seat["rank_index"]),
            seat["address"] or "-",
            seat["member"] or "-",
            seat["generation"],
            _coloured(seat["phase"]),
        )
    return table


def _metrics(metrics: dict[str, Any]) -> Text:
    """The metrics in the newest lines of the log."""
    numbers = log_metric_values.shown(metrics)
    line = Text(f"log: {numbers} ({local_time(metrics['time'])})" if numbers else "log: no numbers yet", style="dim")
    return line.append(f" {metrics['problem']}", style="yellow") if metrics["problem"] else line


def _node_check(rounds: list[dict[str, Any]]) -> Table:
    """The node check by rank index; of a large job only members that stand out."""
    table = columns("check round", "rank index", "member", "status", "compute", "network", "elapsed", "why")
    for each in rounds:
        verdicts = each.get("verdicts", {})
        for index, member in each["members"].items():
            why = "; ".join(part for part in (member["why"], verdicts.get(index, "")) if part)
            times = (f"{member[name]:.3f} s" for name in ("compute", "network", "elapsed"))
            table.add_row(str(each["round"]), index, member["member"], member["status"], *times, Text(why))
    left = sum(each["measured"] - len(each["members"]) for each in rounds)
    if left > 0:
        table.caption = f"and {left} more that do not stand out"
    return table


def _faults(faults: list[dict[str, Any]]) -> Table:
    table = columns("time", "fault", "member", "lost", "reason")
    for fault in faults[-FAULTS_SHOWN:]:
        table.add_row(
            local_time(fault["time"]),
            fault["kind"],
            fault["member"] or "-",
            seconds(fault["seconds_lost"]),
            Text(printable(fault["reason"])),
        )
    if len(faults) > FAULTS_SHOWN:
        table.caption = f"the last {FAULTS_SHOWN} of {len(faults)}"
    return table


def _coloured(word: str) -> Text:
    return Text(word, style=STYLES.get(word, ""))
