"""Reads the status and events of a job, from its master or else from the files in its folder.

The master may be gone for a second (it restarts while training continues) or for good (the job ended). The files that
it writes are the same documents, so the reader falls back on them and says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from outrider.cli import job_dirs
from outrider.cli.client import Master
from outrider.cli.errors import Unreachable, UserError

STATUS_FIELDS = {
    "job": str,
    "phase": str,
    "generation": str,
    "world": int,
    "step": int,
    "faults": list,
    "members": list,
}
EVENT_FIELDS = {"seq": int, "kind": str, "generation": str, "reason": str, "detail": dict}
"""Fields that every valid document has. One without them was truncated by a full disk, or edited by hand."""


def status_of(job: str) -> dict[str, Any]:
    """The newest status document of a job, running or ended."""
    try:
        return live_status(job)
    except Unreachable as away:
        try:
            return saved_status(job) | {"message": f"as last saved: {away.message}"}
        except UserError:
            raise away from None


def live_status(job: str) -> dict[str, Any]:
    """The status document of a job as it is now. Raises Unreachable if the job runs and its master does not answer."""
    folder = job_dirs.existing(job)
    if not job_dirs.is_running(folder.name):
        return _ended(saved_status(folder.name), folder.name)
    return Master(folder).status()


def saved_status(job: str) -> dict[str, Any]:
    """The status document that the job's master wrote last."""
    job = job_dirs.existing(job).name
    path = job_dirs.job_folder(job) / "status.json"
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        if (path.parent / "events.jsonl").exists():
            raise UserError(f"the status of {job} cannot be read: {path} is missing") from None
        raise UserError(f"job {job} has no status yet: it is starting, or ended before it could begin") from None
    except (OSError, ValueError) as broken:
        raise UserError(f"the status of {job} cannot be read: {path}: {broken}") from broken
    if not isinstance(document, dict) or not all(isinstance(document.get(n), k) for n, k in STATUS_FIELDS.items()):
        raise UserError(f"the status of {job} cannot be read: {path} has no status document")
    document.pop("saved", None)  # only the next master needs it
    return document


def _ended(document: dict[str, Any], job: str) -> dict[str, Any]:
    """The status of a job whose lock is free: it is not running, whatever was written last. Its command was killed."""
    if document.get("phase") in ("succeeded", "failed", "stopped"):
        return document
    gone = [member | {"state": "gone", "pids": {}} for member in document.get("members", ())]
    message = f"{job} was {document.get('phase', 'starting')} when the command that ran it was killed"
    return document | {"phase": "failed", "message": message, "members": gone}


def saved_events(job: str) -> Iterator[dict[str, Any]]:
    """The events written so far. An unfinished last line is left for later; a line that is not a valid event, because
    a master was killed while writing it or the file was edited, is skipped."""
    path = job_dirs.existing(job) / "events.jsonl"
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    except OSError as refused:
        raise UserError(f"the events of {job} cannot be read: {path}: {refused.strerror}") from refused
    for line in lines[:-1]:
        if (event := _event(line)) is not None:
            yield event


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(event, dict) and all(isinstance(event.get(name), kind) for name, kind in EVENT_FIELDS.items())
    return event if whole else None
