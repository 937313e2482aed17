"""Injects lasting faults into a member of a local job.

A program in the hooks makes and undoes them. It is started with the marks of the member, so that it is found by them
and ends with the member (docs/contracts.md §1).
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
    """Inject a fault; print a line and return once it is active."""
    if fault.name.endswith("-network") and not _is_isolated(_process_of(job, volume)[0]):
        raise UserError(
            f"{volume.name} of {job} shares this machine's network, which faults must not break; "
            "start the job with `outrider run --isolate`"
        )
    started = _called(job, volume, "start", str(fault))
    until = f"until: outrider chaos undo {job}" if fault.seconds is None else f"for {fault.lasts}"
    click.echo(f"{volume.name} of {job}: {started['about']}, {until}")


def undo(job: str, volume: Path, name: str | None) -> list[str]:
    """Undo the faults of a member, or the named one; returns the faults that were undone."""
    return list(_called(job, volume, "undo", *([name] if name else []))["undone"])


def listed(job: str, volume: Path) -> dict[str, list[dict[str, Any]]]:
    """The active and the refused faults of a member."""
    return _called(job, volume, "list")


def _called(job: str, volume: Path, *words: str) -> dict[str, Any]:
    pid, marks = _process_of(job, volume)
    environment = {"PATH": os.environ.get("PATH", os.defpath), **marks}
    command = [sys.executable, "-I", "-S", str(PROGRAM), *words]
    if _is_isolated(pid):
        command = ["nsenter", f"--target={pid}", "--net", "--pid", "--mount", "--ipc", "--uts", "--", *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, start_new_session=True)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise UserError(
            f"the program that injects faults ended with exit code {done.returncode}: {done.stderr[-300:]}"
        ) from None
    if "error" in answer:
        raise UserError(f"{volume.name} of {job}: {answer['error']}")
    return answer


def _is_isolated(pid: int) -> bool:
    """Whether the member has its own network (`outrider run --isolate`)."""
    return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")


def _process_of(job: str, volume: Path) -> tuple[int, dict[str, str]]:
    """Any process of the member, and its marks."""
    for pid in marked("OUTRIDER_DIR", str(volume)):
        try:
            entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        found = dict(os.fsdecode(entry).partition("=")[::2] for entry in entries if entry)
        if all(name in found for name in MARKS):
            return pid, {name: found[name] for name in MARKS}
    raise UserError(f"{volume.name} of {job} has no process on this machine")
