"""Reads a job's documents while a page shows it, once for all pages, and keeps the newest.

A slow or absent master delays the pages of its own job alone, and they show how old their data are.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Any

from outrider.cli.dashboard import page
from outrider.cli.dashboard.sources import Source
from outrider.cli.errors import UserError
from outrider.report import drawing
from outrider.report.job import OVER, Job, job_of

TIMELINE_EVERY = 2.0
"""Seconds between two readings of the history."""
SHARE = 4.0
"""The time between two readings is at least so many times what one takes: a large job costs no whole core."""
FIRST_EVENTS = 500
ENDED_EVERY, ENDING = 10.0, 5
"""Seconds between two readings of an ended job, after so many at the usual distance for its last documents."""
log = logging.getLogger("dashboard")
Message = tuple[str, str]
"""The name of a server-sent event, and its JSON."""


def packed(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


@dataclass(slots=True)
class Newest:
    """What is known of a job, as JSON; empty: not yet."""

    job: str = ""
    timeline: str = ""
    trouble: str = packed({"sentence": ""})
    events: list[dict[str, Any]] = field(default_factory=list)
    """The newest events, oldest first."""
    read: int = 0
    """The number of events that have been read."""


class JobFeed:
    """One job; it is read while a page listens."""

    def __init__(self, source: Source, job: str) -> None:
        self._source, self._job = source, job
        self._newest, self._shown = Newest(), Newest()
        """What the thread that reads writes, and a copy of it after each whole reading."""
        self._changed = asyncio.Condition()
        self._listeners = 0
        self._reading: asyncio.Task[None] | None = None
        self._ended = 0
        self._history: tuple[float, Job | None, list[list[float]]] = (float("-inf"), None, [])
        self._keys: dict[str, None] = {}

    @property
    def is_shown(self) -> bool:
        """Whether a page listens, or the last reading for one is under way."""
        return self._reading is not None and not self._reading.done()

    async def messages(self) -> AsyncGenerator[Message]:
        """What is new, from everything that is known on."""
        self._listeners += 1
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._read())
        sent, read = {"job": "", "timeline": "", "trouble": ""}, None
        try:
            newest = self._shown
            while True:
                for name, before in sent.items():
                    text = getattr(newest, name)
                    if text and text != before:
                        sent[name] = text
                        yield name, text
                new = newest.read if read is None else newest.read - read
                if new or read is None:
                    shown = newest.events[-min(new, FIRST_EVENTS) :] if new else []
                    read = newest.read
                    yield "events", packed({"events": shown})
                newest = await self._after(newest)
        finally:
            self._listeners -= 1

    async def _after(self, seen: Newest) -> Newest:
        """The next reading, also if it was made while the page was busy with this one."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._shown is not seen)
        return self._shown

    async def close(self) -> None:
        """Ends the reading."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def _read(self) -> None:
        while self._listeners:
            begin = time.monotonic()
            try:
                why = await asyncio.to_thread(self._once)
            except UserError as error:
                why = f"{error.message}."
            except Exception as error:  # else the pages would wait without a word
                log.exception("reading %s failed", self._job)
                why = f"reading {self._job} failed: {type(error).__name__}: {error}."
            self._newest.trouble = packed({"sentence": page.cleaned(why)})
            self._shown = replace(self._newest, events=self._newest.events.copy())
            async with self._changed:
                self._changed.notify_all()
            took = time.monotonic() - begin
            every = ENDED_EVERY if self._ended > ENDING else self._source.every
            await asyncio.sleep(max(every, SHARE * took))

    # -- on a thread ------------------------------------------------------------------------------------------------
    def _once(self) -> str:
        """Reads everything once; returns why it is old, if it is."""
        status, now = self._source.status(self._job), time.time()
        self._ended = self._ended + 1 if status.get("phase") in OVER else 0
        job, over_time = self._read_history(status, now)
        document = page.document(job, status, self._source.may(self._job), now)
        self._newest.job = packed(document | {"at": status.get("as_of") or now, "over_time": over_time})
        self._read_events()
        return str(status.get("late") or "")

    def _read_history(self, status: dict[str, Any], now: float) -> tuple[Job, list[list[float]]]:
        read_at, job, over_time = self._history
        if job is None or time.monotonic() - read_at >= TIMELINE_EVERY:
            sources = self._source.sources(self._job, status)
            job, over_time = job_of(sources, now), page.over_time([part for _name, part in sources.parts])
            self._newest.timeline = str(drawing.data(job))
            self._history = time.monotonic(), job, over_time
        return job, over_time

    def _read_events(self) -> None:
        """Adds the events that were not there before: a source has no numbers for those of a cluster."""
        for event in page.events(self._source.events(self._job)):
            key = packed(event)
            if key not in self._keys:
                self._keys[key] = None
                self._newest.events.append(event)
                self._newest.read += 1
        del self._newest.events[:-FIRST_EVENTS]
        for key in list(self._keys)[: -10 * FIRST_EVENTS]:
            del self._keys[key]


class JobsFeed:
    """The list of all jobs."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def messages(self) -> AsyncGenerator[Message]:
        before: list[dict[str, Any]] | None = None
        trouble = ""
        while True:
            begin = time.monotonic()
            try:
                found, why = [page.summary(each) for each in await asyncio.to_thread(self._source.jobs)], ""
                if found != before:
                    before = found
                    yield "jobs", packed({"at": time.time(), "jobs": found})
            except UserError as error:
                why = str(page.cleaned(f"{error.message}."))
            if why != trouble:
                trouble = why
                yield "trouble", packed({"sentence": why})
            await asyncio.sleep(max(self._source.every, SHARE * (time.monotonic() - begin)))


class Feeds:
    """The feeds of all jobs that pages show."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._jobs: dict[str, JobFeed] = {}

    def of(self, job: str) -> JobFeed:
        self._jobs = {name: feed for name, feed in self._jobs.items() if feed.is_shown}
        return self._jobs.setdefault(job, JobFeed(self._source, job))

    async def close(self) -> None:
        await asyncio.gather(*(feed.close() for feed in self._jobs.values()))

    def all(self) -> JobsFeed:
        return JobsFeed(self._source)
