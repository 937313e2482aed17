"""Holds back jobs until their patterns have been compiled in another process (`master.service.pattern_compiler`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container

from outrider.master.core.k8s.elasticjob import deletion
from outrider.master.core.k8s.values import phases
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.patterns import Verdicts
from outrider.master.kubernetes.background import Background
from outrider.master.service.pattern_compiler import NotJudged, Patterns
from outrider.wire.ids import JobName

AGAIN = 5.0
"""Seconds until a failed compilation is retried."""

log = logging.getLogger("fleet")


class JudgedPatterns:
    """`judged` is called with each job's newest document once its patterns are judged."""

    def __init__(self, background: Background, judged: Callable[[Document], None]) -> None:
        self._background, self._judged = background, judged
        self._patterns = Patterns()
        self._waiting: dict[JobName, Document] = {}

    @property
    def verdicts(self) -> Verdicts:
        return self._patterns.verdicts

    def must_be_judged(self, key: JobName, job: Document) -> bool:
        """Whether the job must wait for its patterns; if so, `judged` is called later."""
        if deletion.is_deleted(job) or phases.is_over(job) or not self._patterns.unknown(job):
            self.forget(key)
            return False
        is_new, self._waiting[key] = key not in self._waiting, job
        if is_new:
            self._background.start(self._judge(key))
        return True

    def forget(self, key: JobName) -> None:
        self._waiting.pop(key, None)

    def keep_only(self, there: Container[JobName]) -> None:
        for key in [key for key in self._waiting if key not in there]:
            self.forget(key)

    async def _judge(self, key: JobName) -> None:
        while (job := self._waiting.get(key)) is not None and self._patterns.unknown(job):
            try:
                await self._patterns.learn(job)
            except NotJudged as error:
                log.warning("job %s waits, its patterns cannot be compiled: %s; retrying in %g s", key, error, AGAIN)
                await asyncio.sleep(AGAIN)
        if (newest := self._waiting.pop(key, None)) is not None:
            self._judged(newest)
