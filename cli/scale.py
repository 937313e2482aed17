"""`outrider scale JOB N`: more or fewer members, within the range that --nnodes gave."""

from __future__ import annotations

import click

from cli.client import running_master
from cli.sizes import MOST_MEMBERS


@click.command()
@click.argument("job")
@click.argument("replicas", metavar="N", type=click.IntRange(1, MOST_MEMBERS))
def scale(job: str, replicas: int) -> None:
    """Give JOB N members; the world changes at its next checkpoint."""
    master = running_master(job)
    master.post("/v1/scale", {"replicas": replicas})
    click.echo(f"{master.job} is being scaled to {replicas}")
