"""`outrider stacks JOB`: where every rank's Python is now, read without ptrace by the hooks inside it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import click

from outrider.cli.client import running_master
from outrider.cli.errors import Unreachable, UserError
from outrider.cli.kube import diagnostics as kube_diagnostics

MUTE = "it has no handler for the signal yet"
Answers = dict[str, Any]


def asks_ranks(what: str) -> Callable[[Callable[[Answers], None]], Callable[..., None]]:
    """The argument and options of a command that shows what all ranks of a job answer, local or in a cluster."""

    def with_options(show: Callable[[Answers], None]) -> Callable[..., None]:
        @click.argument("job", required=False)
        @click.option("--pod", metavar="NAME", help="One pod of a cluster instead of a local job.")
        @click.option("--pods-of", metavar="JOB", help="All pods of a job of a cluster.")
        @click.option("-n", "--namespace", metavar="NS", help="Theirs; else that of kubectl's context.")
        @click.option("--json", "as_json", is_flag=True, help="The answers as they came.")
        @functools.wraps(show)
        def command(as_json: bool, **whom: str | None) -> None:
            answer = collected(what, **whom)
            if as_json:
                click.echo(json.dumps(answer, indent=2))
            else:
                show(answer)

        return command

    return with_options


def collected(what: str, job: str | None, pod: str | None, pods_of: str | None, namespace: str | None) -> Answers:
    """What every member of a running job, or every pod, answered; an error where none did."""
    if pod is None and pods_of is None:
        if namespace is not None:
            raise UserError("--namespace is for --pod NAME and --pods-of JOB; a local job has none")
        master = running_master(job)
        answer, asked = master.collect(what), f"member of {master.job}"
    else:
        _one_of({"the local job": job, "--pod": pod, "--pods-of": pods_of})
        answer = kube_diagnostics.told(what, pod, pods_of, namespace)
        asked = f"pod of {pods_of}" if pod is None else f"pod {pod}"
    mute = dict.fromkeys(answer.get("missing", ()), "")
    mute |= {member: f": {body['error']}" for member, body in answer["members"].items() if "error" in body}
    for member, why in mute.items():
        click.echo(f"outrider: {member} did not answer{why}", err=True)
    if not answer["members"].keys() - mute.keys():
        raise Unreachable(f"no {asked} answered")
    return answer


def _one_of(given: dict[str, str | None]) -> None:
    named = [f"{what} {value}" for what, value in given.items() if value is not None]
    if len(named) > 1:
        raise UserError(f"{' and '.join(named)} are not asked at once: give one of them")
    if named[0].endswith(" "):
        raise UserError(f"{named[0].strip()} wants a name")


def rows(answer: Answers) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every rank's part of an answer with its member, by rank."""
    found = [(member, row) for member, body in answer["members"].items() for row in body.get("ranks", ())]
    yield from sorted(found, key=lambda each: each[1]["rank"])


@click.command()
@asks_ranks("stacks")
def stacks(answer: Answers) -> None:
    """Show where every rank of JOB, or of the only running job, is now."""
    for member, row in rows(answer):
        where = f"rank {row['rank']} ({member}, pid {row['pid']})"
        at = f", step {row['step']:,}, {row['phase']}" if "step" in row else ""
        click.secho(where + at, bold=True)
        click.echo((row.get("stack") or f"no stack: {row.get('error', MUTE)}").rstrip() + "\n")
