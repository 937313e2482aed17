"""Records the training progress of a local job for `outrider plot`.

It adds a record a second, and thins them out as the job ages. The core knows the newest step and its time from the
ranks' reports. This module only reads it: the record has no effect on the job, and a failed write is ignored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from outrider.master.core import job_kinds
from outrider.master.core.job_kinds import Job
from outrider.runtime.series import Series

EVERY = 1.0
"""Seconds between two records, equal to the members' report interval."""


class Progress:
    """Writes `progress.jsonl` in the job's folder."""

    def __init__(self, folder: Path, job: Callable[[], Job]) -> None:
        self._series, self._job = Series(folder / "progress.jsonl"), job

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self.note()

    def note(self) -> None:
        at = job_kinds.position(self._job())
        stepped = None if at.stepped_at is None else round(at.stepped_at + at.unix_offset, 3)
        self._series.add(time.time(), generation=at.generation, members=at.members, step=at.step, stepped_at=stepped)

    def close(self) -> None:
        """Writes a last record and closes the file."""
        self.note()
        self._series.close()
