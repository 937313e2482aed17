"""`outrider clean [JOB…]`: removes the files of jobs that have ended on this machine."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

import click

from outrider.cli import job_dirs
from outrider.cli.errors import UserError
from outrider.cli.text import plural

KEPT = re.compile(r" is kept as (/.*), because a state of step \d+ takes its place$")
"""The sentence of `training_hooks.checkpoints.newer_kept`, with the path of the file."""


@click.command()
@click.argument("jobs", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Remove the files of all jobs that have ended.")
def clean(jobs: tuple[str, ...], everything: bool) -> None:
    """Remove the files of ended JOBS: their folders, and checkpoints in .outrider-kept/."""
    if everything and jobs:
        raise UserError("--all and JOBS: must not be used together; give one of them")
    if everything:
        jobs = tuple(job for job in job_dirs.jobs() if not job_dirs.is_running(job))
    elif not jobs:
        raise UserError("JOBS: must be given (outrider clean JOB…), or --all for all jobs that have ended")
    for job in jobs:
        _clean(job_dirs.existing(job))
    if everything:
        click.echo(f"removed {plural(len(jobs), 'job')} from {job_dirs.home()}")


def _clean(folder: Path) -> None:
    """Remove one job while holding its lock, so that no job of that name starts meanwhile."""
    with (folder / "lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder.name} is running; stop it first: outrider stop {folder.name}") from None
        for path in kept(folder):
            with suppress(FileNotFoundError):
                path.unlink()
                click.echo(f"{folder.name}: removed {path}")
            with suppress(OSError):  # another job's file is there
                path.parent.rmdir()
        try:
            shutil.rmtree(folder)
        except OSError as refused:
            raise UserError(f"{folder} cannot be removed: {refused.strerror} ({refused.filename})") from refused
    click.echo(f"{folder.name}: removed {folder}")


def kept(folder: Path) -> list[Path]:
    """The newer checkpoints that Outrider preserved for the job; none if its status cannot be read."""
    try:
        notes = json.loads((folder / "status.json").read_text())["data"]["notes"]
        found = [KEPT.search(note["sentence"]) for note in notes if note["kind"] == "NewerCheckpointPreserved"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    paths = [Path(os.path.normpath(match.group(1))) for match in found if match]
    return [path for path in dict.fromkeys(paths) if path.parent.name == ".outrider-kept"]
