"""`outrider events [JOB] [--follow]`: shows the events of a job, one line each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from outrider.cli import job_dirs
from outrider.cli.client import Master
from outrider.cli.documents import saved_events
from outrider.cli.errors import Unreachable
from outrider.cli.text import event_line, event_style, local_time

RETRY_SECONDS = 0.2
"""Seconds between two tries while a master restarts."""


@click.command()
@click.argument("job", required=False)
@click.option("--follow", "-f", is_flag=True, help="Continue until the job ends.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines (docs/reference/status.md) instead of text.")
def events(job: str | None, follow: bool, as_json: bool) -> None:
    """Show the events of JOB (default: the only running job)."""
    name = job_dirs.the_job(job)
    console = Console(soft_wrap=True, highlight=False)
    for event in followed(name) if follow else saved_events(name):
        if as_json:
            click.echo(json.dumps(event))
        else:
            console.print(Text(f"{local_time(event['time'])} {event_line(event)}", style=event_style(event)))


def followed(job: str) -> Iterator[dict[str, Any]]:
    """All events of a job, from the first one until the job ends, across restarts of its master."""
    last = 0
    while True:
        running = job_dirs.is_running(job)
        for event in _beyond(last, job, running):
            last = event["seq"]
            yield event
        if not running:
            return
        time.sleep(RETRY_SECONDS)


def _beyond(last: int, job: str, running: bool) -> Iterator[dict[str, Any]]:
    for event in saved_events(job):
        if event["seq"] > last:
            last = event["seq"]
            yield event
    if not running:
        return
    try:
        yield from Master(job_dirs.job_folder(job)).follow(after=last)
    except Unreachable:
        return
