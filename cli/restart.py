"""`outrider restart JOB`: a new generation whose ranks read the script again.

A fixed bug or a new learning rate is live without a new job: now, or once the next checkpoint is finished.
"""

from __future__ import annotations

import click

from cli.client import running_master


@click.command()
@click.argument("job", required=False)
@click.option("--at-checkpoint", is_flag=True, help="When the next checkpoint is finished: no step is made twice.")
def restart(job: str | None, at_checkpoint: bool) -> None:
    """Start JOB's script again, read anew; the members stay."""
    master = running_master(job)
    master.post("/v1/restart", {"at_checkpoint": at_checkpoint})
    click.echo(f"{master.job} restarts {'after its next checkpoint' if at_checkpoint else 'now'}")
