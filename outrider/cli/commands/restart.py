"""`outrider restart JOB`: starts a new generation whose ranks read the script again.

A fixed bug or a new learning rate takes effect without a new job: now, or when the next checkpoint is finished. A
script whose imports would fail is refused before anything is stopped.
"""

from __future__ import annotations

import click

from outrider.cli.client import running_master

CHECK_SECONDS = 160.0
"""Seconds to wait for the response; the master answers within 150 s."""


@click.command()
@click.argument("job", required=False)
@click.option("--at-checkpoint", is_flag=True, help="Wait until the next checkpoint is finished: no step is repeated.")
@click.option("--no-check", is_flag=True, help="Do not check first whether the script's imports work.")
def restart(job: str | None, at_checkpoint: bool, no_check: bool) -> None:
    """Restart JOB with its script as it is now; the members stay. If the script cannot start, nothing is stopped."""
    master = running_master(job)
    response = master.post("/v1/restart", {"at_checkpoint": at_checkpoint, "check": not no_check}, CHECK_SECONDS)
    if why := response.get("unchecked"):
        click.echo(f"the script was not checked before the restart: {why}", err=True)
    click.echo(f"{master.job} restarts {'after its next checkpoint' if at_checkpoint else 'now'}")
