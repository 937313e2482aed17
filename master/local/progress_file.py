"""Writes down how the training of a local job goes, for `outrider plot`. It is a moment a second, sparser with the
job's age.

The core knows the newest step and when it was made, as the ranks' own reports say. Here it is only looked at: what is
written changes nothing, and what cannot be written fails nothing.
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
"""Seconds: as often as members report."""


class Progress:
    """`progress.jsonl` in the job's folder."""

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
        """With how it stands at the end."""
        self.note()
        self._series.close()
