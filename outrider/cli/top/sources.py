"""The sources of `outrider top`: the jobs of this machine, or ElasticJobs by the user's own rights."""

from __future__ import annotations

import os
from typing import Any, Protocol

from outrider.cli import job_dirs
from outrider.cli.client import Master
from outrider.cli.documents import live_status, saved_events
from outrider.cli.errors import UserError

EVENTS_KEPT = 500
Document = dict[str, Any]


class Source(Protocol):
    """Each method asks once and raises UserError if that fails."""

    every: float
    """Seconds between two requests."""

    def jobs(self) -> list[Document]: ...

    def status(self, job: str) -> Document: ...

    def events(self, job: str) -> list[Document]:
        """The newest events, oldest first."""
        ...

    def stacks(self, job: str) -> Document:
        """The answer of `outrider stacks`: `members` with their `ranks` or an `error`, and `missing`."""
        ...


class Local:
    """The jobs of this machine."""

    every = 1.0

    def __init__(self) -> None:
        self._read: tuple[tuple[str, int, int], list[Document]] = (("", 0, 0), [])

    def jobs(self) -> list[Document]:
        documents = []
        for job in job_dirs.jobs():
            try:
                documents.append(live_status(job))
            except UserError as error:
                documents.append({"job": job, "phase": "", "message": error.message})
        return documents

    def status(self, job: str) -> Document:
        return live_status(job)

    def events(self, job: str) -> list[Document]:
        """Read again only if the file has changed."""
        try:
            found = os.stat(job_dirs.existing(job) / "events.jsonl")
        except FileNotFoundError:
            return []
        stamp = (job, found.st_mtime_ns, found.st_size)
        if self._read[0] != stamp:
            self._read = stamp, list(saved_events(job))[-EVENTS_KEPT:]
        return self._read[1]

    def stacks(self, job: str) -> Document:
        return Master(job_dirs.existing(job)).collect("stacks")
