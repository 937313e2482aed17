"""Finds the members of a local job and their processes, and sends signals to them.

The pids in a status document may be outdated, so a signal is sent only to a process that still carries the marks of the
job's own folder (`runtime.processes`).
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
"""States of members with processes."""
PIDS_PATIENCE = 10.0


def with_processes(job: str, member: str | None) -> list[str]:
    """The members with processes, reported or not: a member that is cut off cannot report."""
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
        if time.monotonic() > until:  # before the next report the pid is that of the last generation
            raise UserError(f"the {part} of {target} has already ended (pid {pid}); try again")
        time.sleep(0.05)


def whole_member(job: str | None, member: str | None, number: signal.Signals) -> None:
    name = running(job)
    target, _ = with_process(name, member, "sidecar", lambda pids: pids.get("sidecar") or 0)
    signal_all(name, target, number)


def signal_all(job: str, member: str, number: signal.Signals) -> None:
    """Signal every process of a member, again for those forked meanwhile, until there is no new one."""
    uids = {_pod_uid(pid) for pid in marked("OUTRIDER_DIR", str(volume(job, member)))} - {""}
    reached: set[int] = set()
    while fresh := {pid for uid in uids for pid in marked("OUTRIDER_POD_UID", uid)} - reached:
        for pid in sorted(fresh):
            for uid in uids:
                send_signal(pid, number, "OUTRIDER_POD_UID", uid)
        reached |= fresh
    if not reached:
        raise UserError(f"{member} of {job} has no process on this machine")
    click.echo(f"sent {number.name} to the {plural(len(reached), 'process', 'processes')} of {member} of {job}")


def volume(job: str, member: str) -> Path:
    return job_dirs.job_folder(job) / "members" / member


def _pod_uid(pid: int) -> str:
    """The mark that all processes of a member inherit, even if the rest of their environment changes."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    name = b"OUTRIDER_POD_UID="
    return next((entry[len(name) :].decode() for entry in entries if entry.startswith(name)), "")


def with_process(job: str, member: str | None, part: str, chosen: Callable[[dict[str, Any]], int]) -> tuple[str, int]:
    """The given member, else the last one of the running generation with such a process; and the process.

    Pids are reported once a second, so a process that has just started is waited for.
    """
    until = time.monotonic() + PIDS_PATIENCE
    while True:
        found = _members_with(job, member, chosen, HERE if member else ("running",))
        if found:
            return list(found.items())[-1]
        if time.monotonic() > until:
            raise UserError(f"{member} has no {part} at the moment" if member else _none_trains(job, part))
        time.sleep(0.05)


def _none_trains(job: str, part: str) -> str:
    there = [each["id"] for each in status_of(job)["members"] if each["state"] in HERE]
    candidates = ", ".join(there) or "none yet"
    return f"no running member of {job} has a {part}; choose one with --member (candidates: {candidates})"


def _members_with(
    job: str, member: str | None, chosen: Callable[[dict[str, Any]], int], states: Collection[str] = HERE
) -> dict[str, int]:
    members = [each for each in status_of(job)["members"] if each["state"] in HERE]
    names = [each["id"] for each in members]
    if member is not None and member not in names:
        raise UserError(f"--member {member}: must be a member of {job}; it has {', '.join(names) or 'none'}")
    matching = [each for each in members if member in (None, each["id"]) and each["state"] in states]
    return {each["id"]: pid for each in matching if (pid := chosen(each["pids"])) > 0}
