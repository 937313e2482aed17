"""`outrider plot JOB`: how a local job went, as a picture. With --scaling it draws what a job that finds its own size
has measured, a local one or a cluster's."""

from __future__ import annotations

from pathlib import Path

import click

from outrider.cli import job_dirs
from outrider.cli.documents import status_of
from outrider.cli.errors import UserError
from outrider.cli.kube import job as kube_job
from outrider.cli.plotting import curve
from outrider.cli.plotting import picture as plotting_picture
from outrider.cli.plotting.timeline import timeline_of


@click.command()
@click.argument("job", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="A .png, .svg or .pdf. Default: JOB.png, or JOB-scaling.png, in this folder.")  # fmt: skip
@click.option("--scaling", is_flag=True, help="Members against samples a second of a JOB that finds its own size.")
@click.option(
    "--cluster", is_flag=True, help="JOB is an ElasticJob of the cluster that kubectl would reach: --scaling."
)
@click.option("-n", "--namespace", metavar="NS", help="Its namespace; else that of kubectl's context.")
def plot(job: str | None, output: Path | None, scaling: bool, cluster: bool, namespace: str | None) -> None:
    """Draw loss, steps a second, members and faults of JOB, or of the only running job, over time."""
    if cluster or namespace:
        if job is None:
            raise UserError("say which job of the cluster: outrider plot JOB --cluster")
        measured = kube_job.scaling_of(job, namespace)
    else:
        job = job_dirs.the_job(job)
        if not scaling:
            _draw(job, output or Path(f"{job}.png"))
            return
        measured = curve.scaling_of(status_of(job))
    path = output or Path(f"{job}-scaling.png")
    curve.plotted(measured, job, path)
    click.echo(path)


def _draw(job: str, path: Path) -> None:
    timeline = timeline_of(job)
    plotting_picture.save(plotting_picture.figure_of(timeline), path)
    if not timeline.steps:
        known = "loss, members" if timeline.losses else "members"
        click.echo(f"outrider: no step of {job} is on record: only its {known} and faults are drawn", err=True)
    click.echo(path)
