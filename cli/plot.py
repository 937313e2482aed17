"""`outrider plot JOB`: what a job that finds its own size has measured, as a PNG."""

from __future__ import annotations

from pathlib import Path

import click

from cli.curve import plotted, scaling_of
from cli.documents import status_of


@click.command()
@click.argument("job")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Default: JOB-scaling.png in this folder.")  # fmt: skip
def plot(job: str, output: Path | None) -> None:
    """Draw members against samples a second of JOB, which was started with --scaling."""
    document = status_of(job)
    path = output or Path(f"{document['job']}-scaling.png")
    plotted(scaling_of(document), document["job"], path)
    click.echo(path)
