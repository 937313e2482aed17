"""`outrider stacks JOB`: the current Python stack of every rank, read without ptrace by the hooks in its process."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import click

from outrider.cli.client import running_master
from outrider.cli.errors import Unreachable, UserError
from outrider.cli.kube import diagnostics as kube_diagnostics

NO_HANDLER = "the rank has no handler for the signal yet"
Answers = dict[str, Any]


def asks_ranks(what: str) -> Callable[[Callable[[Answers], None]], Callable[..., None]]:
    """Gives a command the argument and options to query all ranks of a job, local or in a cluster."""

    def with_options(show: Callable[[Answers], None]) -> Callable[..., None]:
        @click.argument("job", required=False)
        @click.option("--pod", metavar="NAME", help="Query one pod of a cluster instead of a local job.")
        @click.option("--pods-of", metavar="JOB", help="Query all pods of a job of a cluster.")
        @click.option("-n", "--namespace", metavar="NS", help="Namespace of the pods. Default: of kubectl's context.")
        @click.option("--json", "as_json", is_flag=True, help="Print the answers as JSON.")
        @functools.wraps(show)
        def command(as_json: bool, **target: str | None) -> None:
            answer = collected(what, **target)
            if as_json:
                click.echo(json.dumps(answer, indent=2))
            else:
                show(answer)

        return command

    return with_options


def collected(what: str, job: str | None, pod: str | None, pods_of: str | None, namespace: str | None) -> Answers:
    """The answers of all members of a running job, or of all pods; an error if there is no answer."""
    if pod is None and pods_of is None:
        if namespace is not None:
            raise UserError(f"--namespace {namespace}: must be used with --pod NAME or --pods-of JOB")
        master = running_master(job)
        answer, target = master.collect(what), f"member of {master.job}"
    else:
        _one_of({"JOB": job, "--pod": pod, "--pods-of": pods_of})
        answer = kube_diagnostics.collected(what, pod, pods_of, namespace)
        target = f"pod of {pods_of}" if pod is None else f"pod {pod}"
    missing = dict.fromkeys(answer.get("missing", ()), "")
    missing |= {member: f": {body['error']}" for member, body in answer["members"].items() if "error" in body}
    for member, why in missing.items():
        click.echo(f"outrider: {member} did not answer{why}", err=True)
    if not answer["members"].keys() - missing.keys():
        raise Unreachable(f"no {target} answered")
    return answer


def _one_of(given: dict[str, str | None]) -> None:
    named = [f"{what} {value}" for what, value in given.items() if value is not None]
    if len(named) > 1:
        raise UserError(f"{' and '.join(named)}: must not be used together; give one of them")
    if named[0].endswith(" "):
        raise UserError(f"{named[0].strip()}: must have a name")


def rows(answer: Answers) -> Iterator[tuple[str, dict[str, Any]]]:
    """The part of each rank in the answers, with its member, in the order of ranks."""
    found = [(member, row) for member, body in answer["members"].items() for row in body.get("ranks", ())]
    yield from sorted(found, key=lambda each: each[1]["rank"])


@click.command()
@asks_ranks("stacks")
def stacks(answer: Answers) -> None:
    """Show the Python stack of every rank of JOB (default: the only running job)."""
    for member, row in rows(answer):
        where = f"rank {row['rank']} ({member}, pid {row['pid']})"
        at = f", step {row['step']:,}, {row['phase']}" if "step" in row else ""
        click.secho(where + at, bold=True)
        click.echo((row.get("stack") or f"no stack: {row.get('error', NO_HANDLER)}").rstrip() + "\n")
