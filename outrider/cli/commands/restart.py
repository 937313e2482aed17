"""`outrider restart JOB`: a new generation whose ranks read the script again.

A fixed bug or a new learning rate is live without a new job: now, or once the next checkpoint is finished. A script
that would not come through its imports is refused before anything is stopped.
"""

from __future__ import annotations

import click

from outrider.cli.client import running_master

CHECK_SECONDS = 160.0
"""The master has an answer within 150 s."""


@click.command()
@click.argument("job", required=False)
@click.option("--at-checkpoint", is_flag=True, help="When the next checkpoint is finished: no step is made twice.")
@click.option(
    "--no-check", is_flag=True, help="At once, without a look at whether the script comes through its imports."
)
def restart(job: str | None, at_checkpoint: bool, no_check: bool) -> None:
    """Start JOB's script again, read anew; the members stay. A script that cannot start stops nothing."""
    master = running_master(job)
    answer = master.post("/v1/restart", {"at_checkpoint": at_checkpoint, "check": not no_check}, CHECK_SECONDS)
    if why := answer.get("unchecked"):
        click.echo(f"it was not tried whether the script can begin: {why}", err=True)
    click.echo(f"{master.job} restarts {'after its next checkpoint' if at_checkpoint else 'now'}")
