"""Faults that last, in a member of a local job. The program in the hooks makes them, holds them and undoes them.

It is started here with the marks of the member, so that it is found by them and ends with it (docs/contracts.md §1).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

import training_hooks
from outrider.cli.errors import UserError
from outrider.master.core.k8s.values import chaos
from outrider.runtime.processes import marked

PROGRAM = Path(training_hooks.PACKAGE) / "chaos" / "main.py"
MARKS = ("OUTRIDER_DIR", "OUTRIDER_POD_UID", "OUTRIDER_JOB_UID")


def make(job: str, volume: Path, fault: chaos.Fault) -> None:
    """Returns once the fault is there, and says so."""
    if fault.name.endswith("-network") and not _is_isolated(_process_of(job, volume)[0]):
        raise UserError(
            f"{volume.name} of {job} has this machine's own network, which is not broken; "
            "start the job with `outrider run --isolate`"
        )
    told = _called(job, volume, "start", str(fault))
    until = f"until: outrider chaos undo {job}" if fault.seconds is None else f"for {fault.lasts}"
    click.echo(f"{volume.name} of {job}: {told['about']}, {until}")


def undo(job: str, volume: Path, name: str | None) -> list[str]:
    """The faults that ran there and do not any more."""
    return list(_called(job, volume, "undo", *([name] if name else []))["undone"])


def listed(job: str, volume: Path) -> dict[str, list[dict[str, Any]]]:
    return _called(job, volume, "list")


def _called(job: str, volume: Path, *words: str) -> dict[str, Any]:
    pid, marks = _process_of(job, volume)
    environment = {"PATH": os.environ.get("PATH", os.defpath), **marks}
    command = [sys.executable, "-I", "-S", str(PROGRAM), *words]
    if _is_isolated(pid):
        command = ["nsenter", f"--target={pid}", "--net", "--pid", "--mount", "--ipc", "--uts", "--", *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, start_new_session=True)
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise UserError(f"the program that makes faults ended with {done.returncode}: {done.stderr[-300:]}") from None
    if "error" in told:
        raise UserError(f"{volume.name} of {job}: {told['error']}")
    return told


def _is_isolated(pid: int) -> bool:
    """Whether the member has a network of its own (`outrider run --isolate`)."""
    return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")


def _process_of(job: str, volume: Path) -> tuple[int, dict[str, str]]:
    """Any process of the member, and the marks that it carries."""
    for pid in marked("OUTRIDER_DIR", str(volume)):
        try:
            entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        found = dict(os.fsdecode(entry).partition("=")[::2] for entry in entries if entry)
        if all(name in found for name in MARKS):
            return pid, {name: found[name] for name in MARKS}
    raise UserError(f"{job} has no process of {volume.name} here")
