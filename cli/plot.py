"""`outrider plot JOB`: what a job that finds its own size has measured, as a PNG; a local job's, or a cluster's."""

from __future__ import annotations

from pathlib import Path

import click

from cli import job_of_cluster
from cli.curve import plotted, scaling_of
from cli.documents import status_of


@click.command()
@click.argument("job")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Default: JOB-scaling.png in this folder.")  # fmt: skip
@click.option("--cluster", is_flag=True, help="JOB is an ElasticJob of the cluster that kubectl would reach.")
@click.option("-n", "--namespace", metavar="NS", help="Its namespace; else that of kubectl's context.")
def plot(job: str, output: Path | None, cluster: bool, namespace: str | None) -> None:
    """Draw members against samples a second of JOB, which finds its own size."""
    scaling = job_of_cluster.scaling_of(job, namespace) if cluster or namespace else scaling_of(status_of(job))
    path = output or Path(f"{job}-scaling.png")
    plotted(scaling, job, path)
    click.echo(path)
