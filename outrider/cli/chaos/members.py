"""Members of a local job, and their processes: found, and sent signals.

A pid in a status document is a claim about the past, so only a process that still carries the marks of the job's own
folder is ever touched (`runtime.processes`).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from outrider.cli import job_dirs
from outrider.cli.documents import status_of
from outrider.cli.errors import UserError
from outrider.cli.text import plural
from outrider.runtime.processes import marked, seen_from_here, send_signal

HERE = ("starting", "checking", "ready", "running", "stopping", "spare", "silent")
"""States of members that have processes."""
PIDS_PATIENCE = 3.0


def with_processes(job: str, member: str | None) -> list[str]:
    """Whether it has told of them or not: what is cut off has not."""
    return [each for each in _members_with(job, member, lambda _: 1) if marked("OUTRIDER_DIR", str(volume(job, each)))]


def running(job: str | None) -> str:
    name = job_dirs.the_job(job)
    if not job_dirs.is_running(name):
        raise UserError(f"{name} is not running")
    return name


def kill_one(
    job: str | None, member: str | None, number: signal.Signals, part: str, chosen: Callable[[dict[str, Any]], int]
) -> None:
    name = running(job)
    until = time.monotonic() + PIDS_PATIENCE
    while True:
        target, pid = with_process(name, member, part, chosen)
        mark = ("OUTRIDER_DIR", str(volume(name, target)))
        here = seen_from_here(pid, *mark)
        if here and send_signal(here, number, *mark):
            click.echo(f"sent {number.name} to the {part} of {target} (pid {pid})")
            return
        if time.monotonic() > until:  # until the next report it is the process of the generation before
            raise UserError(f"the {part} of {target} is gone already (pid {pid}); ask again")
        time.sleep(0.05)


def whole_member(job: str | None, member: str | None, number: signal.Signals) -> None:
    name = running(job)
    target, _ = with_process(name, member, "sidecar", lambda pids: pids.get("sidecar") or 0)
    signal_all(name, target, number)


def signal_all(job: str, member: str, number: signal.Signals) -> None:
    """Signal every process of a member, and what was forked meanwhile, until there is no new one."""
    uids = {_pod_uid(pid) for pid in marked("OUTRIDER_DIR", str(volume(job, member)))} - {""}
    reached: set[int] = set()
    while fresh := {pid for uid in uids for pid in marked("OUTRIDER_POD_UID", uid)} - reached:
        for pid in sorted(fresh):
            for uid in uids:
                send_signal(pid, number, "OUTRIDER_POD_UID", uid)
        reached |= fresh
    if not reached:
        raise UserError(f"{job} has no process of {member} here")
    click.echo(f"sent {number.name} to the {plural(len(reached), 'process', 'processes')} of {member} of {job}")


def volume(job: str, member: str) -> Path:
    return job_dirs.job_folder(job) / "members" / member


def _pod_uid(pid: int) -> str:
    """The mark that a member's every process inherits, whatever becomes of the rest of its environment."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    name = b"OUTRIDER_POD_UID="
    return next((entry[len(name) :].decode() for entry in entries if entry.startswith(name)), "")


def with_process(job: str, member: str | None, part: str, chosen: Callable[[dict[str, Any]], int]) -> tuple[str, int]:
    """The member that was named, else the last one of the world with such a process; and the process.

    Pids are reported once a second: what has just been started is waited for.
    """
    until = time.monotonic() + PIDS_PATIENCE
    while True:
        found = _members_with(job, member, chosen, HERE if member else ("running",))
        if found:
            return list(found.items())[-1]
        if time.monotonic() > until:
            raise UserError(f"{member} has no {part} now" if member else _no_world(job, part))
        time.sleep(0.05)


def _no_world(job: str, part: str) -> str:
    there = [each["id"] for each in status_of(job)["members"] if each["state"] in HERE]
    return (
        f"no member of {job} that trains has a {part} now, so none is picked; name one with --member: "
        f"{', '.join(there) or 'there is none yet'}"
    )


def _members_with(
    job: str, member: str | None, chosen: Callable[[dict[str, Any]], int], states: Collection[str] = HERE
) -> dict[str, int]:
    members = [each for each in status_of(job)["members"] if each["state"] in HERE]
    names = [each["id"] for each in members]
    if member is not None and member not in names:
        raise UserError(f"{job} has no member {member!r} now; it has {', '.join(names) or 'none'}")
    meant = [each for each in members if member in (None, each["id"]) and each["state"] in states]
    return {each["id"]: pid for each in meant if (pid := chosen(each["pids"])) > 0}
