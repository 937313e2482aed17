"""Runs a job, and says what is to become of it. A job whose core or whose status fails is tried again, more slowly."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from outrider.master.kubernetes.api.client import ApiError
from outrider.master.kubernetes.api.fence import said
from outrider.master.kubernetes.job_runner import RunningJob
from outrider.master.kubernetes.leadership import Leadership
from outrider.master.kubernetes.status_writer import Superseded
from outrider.master.service.sidecars import HandsOff
from outrider.runtime.pump import CORE_FAILED
from outrider.wire.ids import JobName

SLOWEST = 300.0
BEGIN_AGAIN = 5.0
"""Seconds after which a job is tried again whose status could not be claimed."""
CORE_HAS_FAILED = "SupervisionFailed"
"""Reason of the condition Supervised while a job waits to be begun again."""
UNSERVED = (
    "A fault of Outrider itself: what looks after this job has failed ({}). Its ranks train on, and nothing that "
    "happens to them is mended until it begins again, in {} s."
)

log = logging.getLogger("fleet")


class Outcome(Enum):
    OVER = auto()
    DELETED = auto()
    LEFT_ALONE = auto()
    SUPERSEDED = auto()
    """This process ends: it is no longer the master."""


@dataclass(frozen=True, slots=True)
class Again:
    """It is to be begun again now."""

    attempt: int


class Attempts:
    """`pause`: seconds until a job is tried again. `turn_away` gives a job's sidecars their answer."""

    def __init__(
        self, term: int, leadership: Leadership, pause: float, turn_away: Callable[[JobName, HandsOff], None]
    ) -> None:
        self._term, self._leadership, self._pause, self._turn_away = term, leadership, pause, turn_away
        self._failures: dict[JobName, int] = {}
        """How often a job's core has failed without having run for long between."""
        self._unserved: dict[JobName, str] = {}
        """Why those wait to be begun again."""

    def why_unserved(self, key: JobName) -> str | None:
        return self._unserved.get(key)

    def served(self, key: JobName) -> None:
        self._unserved.pop(key, None)

    def forget(self, key: JobName) -> None:
        self._unserved.pop(key, None)
        self._failures.pop(key, None)

    async def run(self, key: JobName, running: RunningJob) -> Outcome | Again:
        log.info("job %s runs here, with term %d", key, self._term)
        began = time.monotonic()
        try:
            code = await running.run()
        except Superseded as error:
            if await self._leadership.is_superseded(error):
                return Outcome.SUPERSEDED
            why = f"its status.saved.term is {error.term}, which no master has written"
            return await self._again_after_a_bug(key, running, why, began)
        except ApiError as error:
            if running.is_left_alone:
                return Outcome.LEFT_ALONE
            if running.is_deleted:
                return Outcome.DELETED
            log.warning("job %s could not be begun: %s; it is tried again in %g s", key, error, self._pause)
            await asyncio.sleep(self._pause)
            return Again(running.attempt)
        except Exception as error:  # a bug of ours, or a status that cannot be read: it is this job's alone
            log.exception("what carries job %s has failed", key)
            running.write_journal()
            return await self._again_after_a_bug(key, running, said(error), began)
        if running.is_left_alone:
            return Outcome.LEFT_ALONE
        if running.is_deleted:
            return Outcome.DELETED
        if code == CORE_FAILED:
            return await self._again_after_a_bug(key, running, running.failure, began)
        return Outcome.OVER

    async def _again_after_a_bug(self, key: JobName, running: RunningJob, why: str, began: float) -> Outcome | Again:
        """The core of this job cannot be trusted any more; those of the others can. It begins again from what is saved
        and from its members' Hellos, ever more slowly and without end, and its ranks train on meanwhile."""
        if running.is_deleted:
            return Outcome.DELETED
        lasted = time.monotonic() - began
        failures = self._failures[key] = 1 if lasted > SLOWEST else self._failures.get(key, 0) + 1
        pause = min(self._pause * 2 ** min(failures, 10), SLOWEST)
        log.error("the core of job %s has failed (a bug of ours): %s; it begins again in %g s", key, why, pause)
        await self._leave_unserved(key, running, UNSERVED.format(why.rstrip("."), f"{pause:g}"))
        await asyncio.sleep(pause)
        return Again(running.attempt + 1)

    async def _leave_unserved(self, key: JobName, running: RunningJob, text: str) -> None:
        self._unserved[key] = text
        self._turn_away(key, HandsOff(text))
        try:
            await running.tell_unsupervised(CORE_HAS_FAILED, text)
        except Exception as error:  # its status may be what cannot be read
            log.warning("that job %s is not supervised could not be written: %s", key, said(error))
