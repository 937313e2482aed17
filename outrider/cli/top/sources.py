"""The sources of `outrider top`: the jobs of this machine, or ElasticJobs by the user's own rights."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Protocol

from outrider.cli import job_dirs
from outrider.cli.client import Master
from outrider.cli.documents import live_status, saved_events
from outrider.cli.errors import UserError
from outrider.cli.run.log import QUIET

EVENTS_KEPT, QUIET_KEPT = 500, 100
"""The most events that are shown, and how many of them are of the kinds that come with each save or member."""
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


def newest(events: Iterable[Document]) -> list[Document]:
    """The newest events, oldest first. Those of each save do not push out the faults."""
    quiet: deque[tuple[int, Document]] = deque(maxlen=QUIET_KEPT)
    others: deque[tuple[int, Document]] = deque(maxlen=EVENTS_KEPT - QUIET_KEPT)
    for place, event in enumerate(events):
        (quiet if event["kind"] in QUIET else others).append((place, event))
    return [event for _place, event in sorted([*quiet, *others], key=itemgetter(0))]


class Local:
    """The jobs of this machine."""

    every = 1.0

    def __init__(self) -> None:
        self._read: dict[str, tuple[tuple[int, int], list[Document]]] = {}

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
        stamp = found.st_mtime_ns, found.st_size
        known = self._read.get(job)
        if known is None or known[0] != stamp:
            known = self._read[job] = stamp, newest(saved_events(job))
        return known[1]

    def stacks(self, job: str) -> Document:
        return Master(job_dirs.existing(job)).collect("stacks")
