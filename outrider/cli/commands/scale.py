"""`outrider scale JOB N`: sets the number of members within --nnodes MIN:MAX; `auto` returns it to --scaling."""

from __future__ import annotations

import click

from outrider.cli.client import running_master
from outrider.cli.flags import FlagError
from outrider.cli.run.size_flags import MOST_MEMBERS

AUTO = "auto"


class Size(click.ParamType[int | str]):
    """A number of members, or `auto`."""

    name = "size"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == AUTO:
            return AUTO
        if not value.isdecimal() or not 1 <= int(value) <= MOST_MEMBERS:
            raise FlagError(f"N {value}: must be a whole number from 1 to {MOST_MEMBERS}, or {AUTO}", ctx)
        return int(value)


@click.command()
@click.argument("job")
@click.argument("replicas", metavar="N|auto", type=Size())
def scale(job: str, replicas: int | str) -> None:
    """Scale JOB to N members at its next checkpoint. With `auto`, a job that was started with --scaling finds its
    own size again."""
    master = running_master(job)
    master.post("/v1/scale", {"replicas": replicas})
    result = "finds its own size again" if replicas == AUTO else f"is being scaled to {replicas}"
    click.echo(f"{master.job} {result}")
