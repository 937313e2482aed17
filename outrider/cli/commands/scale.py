"""`outrider scale JOB N`: more or fewer members, within the range that --nnodes gave; `auto`: it finds its own size."""

from __future__ import annotations

import click

from outrider.cli.client import running_master
from outrider.cli.run.size_flags import MOST_MEMBERS

AUTO = "auto"


class Size(click.ParamType[int | str]):
    name = "size"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == AUTO:
            return AUTO
        return int(click.IntRange(1, MOST_MEMBERS).convert(value, param, ctx))  # type: ignore[arg-type]


@click.command()
@click.argument("job")
@click.argument("replicas", metavar="N|auto", type=Size())
def scale(job: str, replicas: int | str) -> None:
    """Give JOB N members; the world changes at its next checkpoint. With `auto` a job that was started with --scaling
    finds its own size again."""
    master = running_master(job)
    master.post("/v1/scale", {"replicas": replicas})
    wanted = "finds its own size again" if replicas == AUTO else f"is being scaled to {replicas}"
    click.echo(f"{master.job} {wanted}")
