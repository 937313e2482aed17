"""Waits out outages of the API server, and logs them sparingly."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from outrider.master.kubernetes.api.client import ApiError

AGAIN = (1.0, 15.0)
"""First and longest pause between two tries, in seconds."""
LOG_EVERY = 60.0
"""Seconds between two log lines about the same outage."""

Found = TypeVar("Found")


class Outage:
    """Logs a failure when it begins, then once a minute, and when it is over."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._logged_at: float | None = None

    def failed(self, sentence: str) -> None:
        now = self._clock()
        if self._logged_at is None or now >= self._logged_at + LOG_EVERY:
            self._logged_at = now
            self._log.warning("%s", sentence)

    def over(self, sentence: str) -> None:
        if self._logged_at is not None:
            self._logged_at = None
            self._log.warning("%s", sentence)


async def until_it_answers(
    ask: Callable[[], Awaitable[Found]],
    what: str,
    log: logging.Logger,
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> Found:
    """The result of `ask`, retried while the API server is away or busy. Raises ApiError if the server refuses."""
    outage, seconds = Outage(log), AGAIN[0]
    while True:
        try:
            found = await ask()
        except ApiError as error:
            if not error.may_pass:
                raise
            outage.failed(f"{what}: waiting for the API server: {error}")
            await pause(seconds)
            seconds = min(2 * seconds, AGAIN[1])
            continue
        outage.over(f"{what}: the API server answers again")
        return found
