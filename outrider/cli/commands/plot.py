"""`outrider plot JOB`: draws a local job over time as a picture.

With --scaling it draws the throughput that a job with automatic scaling has measured at each size, locally or in a
cluster.
"""

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
              help="Write to FILE (.png, .svg or .pdf). Default: JOB.png or JOB-scaling.png.")  # fmt: skip
@click.option("--scaling", is_flag=True, help="Draw samples per second over members, for a job with --scaling.")
@click.option("--cluster", is_flag=True, help="Draw --scaling of the ElasticJob JOB in kubectl's cluster.")
@click.option("-n", "--namespace", metavar="NS", help="Namespace of the ElasticJob. Default: of kubectl's context.")
def plot(job: str | None, output: Path | None, scaling: bool, cluster: bool, namespace: str | None) -> None:
    """Draw loss, steps per second, members and faults of JOB (default: the only running job) over time."""
    if cluster or namespace:
        if job is None:
            raise UserError("JOB: must be given with --cluster: outrider plot JOB --cluster")
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
        click.echo(f"outrider: {job} has no recorded steps; only its {known} and faults are drawn", err=True)
    click.echo(path)
