"""`outrider report [JOB]`: writes what happened in a job, and what it cost, into one HTML file."""

from __future__ import annotations

import time
from pathlib import Path

import click

from outrider.cli import job_dirs
from outrider.cli.errors import UserError
from outrider.cli.report_files import of_cluster, of_folder, written
from outrider.report.page import report as made


@click.command()
@click.argument("job", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write to FILE; - is the standard output. Default: JOB-report.html.")  # fmt: skip
@click.option("--cluster", is_flag=True, help="Report on the ElasticJob JOB in kubectl's cluster.")
@click.option("-n", "--namespace", metavar="NS", help="Namespace of the ElasticJob. Default: of kubectl's context.")
def report(job: str | None, output: Path | None, cluster: bool, namespace: str | None) -> None:
    """Write what happened in JOB (default: the only running job), and what it cost, into one HTML file."""
    if cluster or namespace:
        if job is None:
            raise UserError("JOB: must be given with --cluster: outrider report JOB --cluster")
        sources = of_cluster(job, namespace)
    else:
        job = job_dirs.the_job(job)
        sources = of_folder(job)
    page = made(sources, time.time())
    if output == Path("-"):
        click.echo(page, nl=False)
        return
    path = output or Path(f"{job}-report.html")
    try:
        written(page, path)
    except OSError as refused:
        raise UserError(f"-o {path}: must be writable ({refused.strerror})") from refused
    click.echo(path)
