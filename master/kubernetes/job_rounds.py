"""Checks all jobs every few seconds: queues those that lack room, ends those whose deadline has passed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from outrider.master.core.events import TurnTold
from outrider.master.core.k8s.elasticjob.queueing import Candidate, Queue
from outrider.master.kubernetes.api.fence import fenced
from outrider.master.kubernetes.ended_jobs import EndedJobs
from outrider.master.kubernetes.job_runner import RunningJob
from outrider.wire.ids import JobName

LOOK_EVERY = 5.0


class JobRounds:
    def __init__(self, running: Mapping[JobName, RunningJob], ended: EndedJobs, ends_jobs: bool) -> None:
        """`ends_jobs`: whether deadlines and TTLs of jobs are enforced."""
        self._running, self._ended, self._ends_jobs = running, ended, ends_jobs

    async def run(self) -> None:
        queue = Queue()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            with fenced("the periodic check of all jobs"):
                if self._ends_jobs:
                    await self.look_at_times(time.time())
                for name, behind in queue.look(self.candidates(), time.monotonic()):
                    self._running[name].put(TurnTold(behind))

    def candidates(self) -> list[Candidate]:
        found = []
        for key, running in self._begun():
            with fenced(f"ElasticJob {key}"):
                found.append(running.candidate())
        return found

    def _begun(self) -> list[tuple[JobName, RunningJob]]:
        return [(key, each) for key, each in self._running.items() if each.has_begun and not each.is_deleted]

    async def look_at_times(self, unix_time: float) -> None:
        """Ends jobs whose deadline has passed, and deletes ended jobs whose TTL has passed."""
        for key, running in self._begun():
            with fenced(f"ElasticJob {key}"):
                running.look_at_time(unix_time)
        await self._ended.delete_expired(unix_time)
