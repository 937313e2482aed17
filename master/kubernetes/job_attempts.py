"""Runs a job and returns what happens to it next. A job whose core or status fails is retried ever more slowly."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from outrider.master.kubernetes.api.client import ApiError
from outrider.master.kubernetes.api.fence import summary
from outrider.master.kubernetes.job_runner import RunningJob
from outrider.master.kubernetes.leadership import Leadership
from outrider.master.kubernetes.status_writer import Superseded
from outrider.master.service.sidecars import HandsOff
from outrider.runtime.journal import Taken
from outrider.runtime.pump import CORE_FAILED
from outrider.wire.ids import JobName

SLOWEST = 300.0
"""Longest pause in seconds between two attempts after a failure of the core."""
BEGIN_AGAIN = 5.0
"""Seconds after which a job whose status could not be claimed is retried."""
KEPT = 8
"""Most journals of ended attempts that stay in memory, of at most 2 MiB each."""
CORE_HAS_FAILED = "SupervisionFailed"
"""Reason of the condition Supervised while a job waits for its next attempt."""
UNSERVED = (
    "Supervision of this job has failed, because of a bug in Outrider ({}). Its ranks continue training, but faults "
    "are not handled until supervision restarts in {} s."
)

log = logging.getLogger("fleet")


class Outcome(Enum):
    OVER = auto()
    DELETED = auto()
    LEFT_ALONE = auto()
    SUPERSEDED = auto()
    """This process ends, as it is no longer the master."""


@dataclass(frozen=True, slots=True)
class Again:
    """The job is to be started again now."""

    attempt: int
    """Number of the next attempt, as in `RunningJob`."""


class Attempts:
    """`pause`: seconds until a job is retried. `turn_away` sends an answer to a job's sidecars."""

    def __init__(
        self, term: int, leadership: Leadership, pause: float, turn_away: Callable[[JobName, HandsOff], None]
    ) -> None:
        self._term, self._leadership, self._pause, self._turn_away = term, leadership, pause, turn_away
        self._failures: dict[JobName, int] = {}
        """Number of consecutive failures of each job's core; a run of more than `SLOWEST` seconds resets it."""
        self._over: dict[JobName, Taken] = {}
        """The journals of the last KEPT attempts that have ended, for bundles."""
        self._unserved: dict[JobName, str] = {}
        """Reason, for each job that waits for its next attempt."""

    def journal_of(self, key: JobName, running: RunningJob | None) -> Taken | None:
        """What is recorded of a running job, or of one of the last that have ended."""
        taken = running.journal.taken() if running is not None and key not in self._unserved else None
        return taken or self._over.get(key)

    def _keep(self, key: JobName, running: RunningJob) -> None:
        self._over.pop(key, None)
        if (taken := running.journal.taken()) is not None:
            self._over[key] = taken
        while len(self._over) > KEPT:
            del self._over[next(iter(self._over))]

    def why_unserved(self, key: JobName) -> str | None:
        return self._unserved.get(key)

    def served(self, key: JobName) -> None:
        self._unserved.pop(key, None)

    def forget(self, key: JobName) -> None:
        self._unserved.pop(key, None)
        self._failures.pop(key, None)

    async def _run(self, key: JobName, running: RunningJob) -> int:
        try:
            return await running.run()
        finally:
            self._keep(key, running)

    async def run(self, key: JobName, running: RunningJob) -> Outcome | Again:
        log.info("job %s: started, with term %d", key, self._term)
        began = time.monotonic()
        try:
            code = await self._run(key, running)
        except Superseded as error:
            if await self._leadership.is_superseded(error):
                return Outcome.SUPERSEDED
            why = f"its status.saved.term is {error.term}, which was not written by a master"
            return await self._again_after_a_bug(key, running, why, began)
        except ApiError as error:
            if running.is_left_alone:
                return Outcome.LEFT_ALONE
            if running.is_deleted:
                return Outcome.DELETED
            log.warning("job %s could not be started: %s; retrying in %g s", key, error, self._pause)
            await asyncio.sleep(self._pause)
            return Again(running.attempt)
        except Exception as error:  # a bug of ours, or a status that cannot be read: it is this job's alone
            log.exception("job %s: supervision failed outside its core", key)
            running.write_journal()
            return await self._again_after_a_bug(key, running, summary(error), began)
        if running.is_left_alone:
            return Outcome.LEFT_ALONE
        if running.is_deleted:
            return Outcome.DELETED
        if code == CORE_FAILED:
            return await self._again_after_a_bug(key, running, running.failure, began)
        return Outcome.OVER

    async def _again_after_a_bug(self, key: JobName, running: RunningJob, why: str, began: float) -> Outcome | Again:
        """Waits, then lets the job's core start again from the saved status and the members' Hellos.

        Only the state of this job's core is suspect, not that of other jobs. The pauses grow, attempts never end, and
        the job's ranks continue training meanwhile.
        """
        if running.is_deleted:
            return Outcome.DELETED
        lasted = time.monotonic() - began
        failures = self._failures[key] = 1 if lasted > SLOWEST else self._failures.get(key, 0) + 1
        pause = min(self._pause * 2 ** min(failures, 10), SLOWEST)
        log.error("the core of job %s failed (a bug in Outrider): %s; restarting it in %g s", key, why, pause)
        await self._leave_unserved(key, running, UNSERVED.format(why.rstrip("."), f"{pause:g}"))
        await asyncio.sleep(pause)
        return Again(running.attempt + 1)

    async def _leave_unserved(self, key: JobName, running: RunningJob, text: str) -> None:
        self._unserved[key] = text
        self._turn_away(key, HandsOff(text))
        try:
            await running.report_unsupervised(CORE_HAS_FAILED, text)
        except Exception as error:  # the unreadable status may itself be the reason
            log.warning("job %s: writing the condition Supervised failed: %s", key, summary(error))
