"""The API server is away: what is waited for, and how often that is said."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from outrider.master.kubernetes.api.client import ApiError

AGAIN = (1.0, 15.0)
"""The first and the longest pause between two tries, in seconds."""
SAY_EVERY = 60.0

Found = TypeVar("Found")


class Outage:
    """Says in the log that something fails, once and then once a minute, and when it is over."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._said_at: float | None = None

    def told(self, sentence: str) -> None:
        now = self._clock()
        if self._said_at is None or now >= self._said_at + SAY_EVERY:
            self._said_at = now
            self._log.warning("%s", sentence)

    def over(self, sentence: str) -> None:
        if self._said_at is not None:
            self._said_at = None
            self._log.warning("%s", sentence)


async def until_it_answers(
    ask: Callable[[], Awaitable[Found]],
    what: str,
    log: logging.Logger,
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> Found:
    """What `ask` returns, tried again for as long as the API server is away or busy. A refusal is the caller's."""
    outage, seconds = Outage(log), AGAIN[0]
    while True:
        try:
            found = await ask()
        except ApiError as error:
            if not error.may_pass:
                raise
            outage.told(f"{what} waits for the API server: {error}")
            await pause(seconds)
            seconds = min(2 * seconds, AGAIN[1])
            continue
        outage.over(f"{what} goes on: the API server answers")
        return found
