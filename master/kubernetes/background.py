"""Background work for jobs: a failure is logged and ends nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine


class Background:
    def __init__(self, log: logging.Logger, what: str) -> None:
        """`what`: the subject of the log line about failed work, which is a bug of ours."""
        self._log, self._what = log, what
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        for task in self.tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._log.error(
                "%s failed (a bug in Outrider): %r", self._what, task.exception(), exc_info=task.exception()
            )
