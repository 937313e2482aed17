"""`outrider stop JOB`: end a job in order; its exit code is that of a job that was stopped."""

from __future__ import annotations

import click

from outrider.cli.client import running_master


@click.command()
@click.argument("job", required=False)
@click.option("--now", is_flag=True, help="Without grace: no save is waited for.")
def stop(job: str | None, now: bool) -> None:
    """End JOB, or the only running one: ranks get SIGTERM, a save is let finish."""
    master = running_master(job)
    master.post("/v1/stop", {"hard": now, "reason": "`outrider stop`"})
    click.echo(f"{master.job} is being stopped")
