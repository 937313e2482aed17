"""`outrider stacks JOB`: where every rank's Python is now, read without ptrace by the hooks inside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from cli.client import running_master
from cli.errors import Unreachable

MUTE = "it has no handler for the signal yet"


def collected(job: str | None, what: str) -> dict[str, Any]:
    """What every member of a running job answered; an error where none did."""
    master = running_master(job)
    answer = master.collect(what)
    for member in answer.get("missing", ()):
        click.echo(f"outrider: {member} did not answer", err=True)
    if not answer.get("members"):
        raise Unreachable(f"no member of {master.job} answered")
    return answer


def rows(answer: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every rank's part of an answer with its member, by rank."""
    found = [(member, row) for member, body in answer["members"].items() for row in body.get("ranks", ())]
    yield from sorted(found, key=lambda each: each[1]["rank"])


@click.command()
@click.argument("job", required=False)
@click.option("--json", "as_json", is_flag=True, help="The answers as they came.")
def stacks(job: str | None, as_json: bool) -> None:
    """Show where every rank of JOB, or of the only running job, is now."""
    answer = collected(job, "stacks")
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    for member, row in rows(answer):
        where = f"rank {row['rank']} ({member}, pid {row['pid']})"
        at = f", step {row['step']:,}, {row['phase']}" if "step" in row else ""
        click.secho(where + at, bold=True)
        click.echo((row.get("stack") or f"no stack: {row.get('error', MUTE)}").rstrip() + "\n")
