"""`outrider stop JOB`: stops a job in order; its exit code is that of a stopped job."""

from __future__ import annotations

import click

from outrider.cli.client import running_master


@click.command()
@click.argument("job", required=False)
@click.option("--now", is_flag=True, help="Do not wait for a save to finish.")
def stop(job: str | None, now: bool) -> None:
    """Stop JOB (default: the only running job): ranks get SIGTERM and may finish a save."""
    master = running_master(job)
    master.post("/v1/stop", {"hard": now, "reason": "`outrider stop`"})
    click.echo(f"{master.job} is being stopped")
