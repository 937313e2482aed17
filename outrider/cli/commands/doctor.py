"""`outrider doctor [COMMAND...]`: what would keep a job from running on this machine or on a cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console

from outrider.cli import job_dirs
from outrider.cli.doctor import command_line, machine, trainer
from outrider.cli.doctor.findings import PROBLEM, Finding, document, lines, summary, warning
from outrider.cli.errors import UserError

MEMBERS = 8
"""Members for which limits are checked if no command is given."""


class _Doctor(click.Command):
    """Reads its own flags up to the first other word; the rest is a command line of `outrider run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = {name: each for each in self.get_params(ctx) if isinstance(each, click.Option) for name in each.opts}
        end = 0
        while end < len(args) and (option := options.get(args[end].partition("=")[0])) is not None:
            end += 1 if option.is_flag or "=" in args[end] else 2
        rest = super().parse_args(ctx, args[:end])
        ctx.params["words"] = tuple(args[end:])
        return rest


@click.command(cls=_Doctor, options_metavar="[FLAGS]")
@click.option("--cluster", is_flag=True, help="Check kubectl's cluster instead of this machine.")
@click.option("-n", "--namespace", metavar="NS", help="Namespace of the jobs. Default: of kubectl's context.")
@click.option("-f", "--filename", "file", metavar="FILE", type=click.File(encoding="utf-8"),
              help="Also check the ElasticJobs in FILE (YAML or JSON; - is stdin) and their volumes.")  # fmt: skip
@click.option("--checkpoints", metavar="DIR", type=click.Path(path_type=Path),
              help="Folder of the checkpoints. Default: the working folder.")  # fmt: skip
@click.option("--isolate", is_flag=True, help="Check what outrider run --isolate needs.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND...]")
def doctor(words: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Find what would keep a job from running, and what to do about it.

    COMMAND is a command line of `outrider run`, with its flags: write `doctor` in place of `run`. The script is not
    run; only what it imports from the installation is. The exit code is 1 if there is a problem.
    """
    found: list[Finding] = []
    out = Console(highlight=False, soft_wrap=True)
    for each in _findings(words, **given):
        found.append(each)
        for line in () if as_json else lines(each):
            out.print(line)
    if as_json:
        click.echo(json.dumps(document(found), indent=2))
    else:
        click.echo(summary(found))
    raise SystemExit(int(any(each.level == PROBLEM for each in found)))


def _findings(
    words: tuple[str, ...],
    cluster: bool,
    namespace: str | None,
    file: IO[str] | None,
    checkpoints: Path | None,
    isolate: bool,
) -> Iterator[Finding]:
    if cluster or namespace or file is not None:
        if words or checkpoints or isolate:
            raise UserError("COMMAND, --checkpoints, --isolate: must not be used together with --cluster, -n or -f")
        from outrider.cli.doctor import cluster as of_a_cluster

        yield from of_a_cluster.checked(namespace, file)
        return
    yield from _of_this_machine(words, checkpoints, isolate)


def _of_this_machine(words: tuple[str, ...], checkpoints: Path | None, isolate: bool) -> Iterator[Finding]:
    words = ("--isolate", *words) if words and isolate and "--isolate" not in words else words
    asked = command_line.request(words, os.environ) if words else None
    request = None if isinstance(asked, Finding) else asked
    members = MEMBERS if request is None else request.most_members
    isolated = isolate or (request is not None and request.limits is not None)
    checks: list[tuple[str, Any]] = [
        ("packages", machine.installation), ("kernel", machine.kernel), ("jobs", machine.home),
        ("ports", machine.loopback), ("host name", machine.host_name), ("/dev/shm", machine.shared_memory),
        ("checkpoints", lambda: machine.checkpoints(checkpoints or job_dirs.here())),
        ("limits", lambda: machine.limits(members, isolated)), ("leftovers", machine.leftovers),
    ]  # fmt: skip
    if isolated:
        checks.append(("isolation", machine.isolation))
    for name, check in checks:
        try:
            yield from check()
        except (OSError, UserError) as error:
            yield warning(name, f"cannot be checked: {error}", "see the reason")
    if isinstance(asked, Finding):
        yield asked
    elif request is not None:
        yield from command_line.place(request)
    if not isinstance(asked, Finding):
        command = () if request is None else request.command
        yield from trainer.checked(command, os.environ, job_dirs.here())
