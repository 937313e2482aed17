"""Creates a job's pods a few at a time, in the order of their requests (slow start).

The number of concurrent creations starts at one and grows by one with each created pod, as in Kubernetes' Job
controller. A refusal (a quota, a policy) halves it. If the server is busy or not reached, it falls to one, after a
pause that grows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from outrider.master.kubernetes.api.client import ApiError

MOST = 32
"""Most concurrent creations of one job; all jobs together may have twice as many
(`master.kubernetes.api.client.CREATIONS`)."""
LEAST_PAUSE, MOST_PAUSE = 0.5, 16.0
"""Shortest and longest pause in seconds after the server was busy or not reached."""


class Slices:
    def __init__(self, least_pause: float = LEAST_PAUSE) -> None:
        self._room, self._open = 1, 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._least_pause, self._pause, self._resumes_at = least_pause, 0.0, 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        await self._await_turn()
        try:
            yield
        except ApiError as error:
            self._failed(error)
            raise
        else:
            self._room, self._pause = min(self._room + 1, MOST), 0.0
        finally:
            self._open -= 1
            self._let_in()

    async def _await_turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came just now
                self._open -= 1
                self._let_in()
            raise

    def _let_in(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._waiting and self._open < self._room and now >= self._resumes_at:
            turn = self._waiting.popleft()
            if not turn.done():
                self._open += 1
                turn.set_result(None)

    def _failed(self, error: ApiError) -> None:
        if not error.may_pass:
            self._room = max(1, self._room // 2)
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._resumes_at:  # another creation of the same slice has failed already
            return
        self._room, self._pause = 1, min(max(2 * self._pause, self._least_pause), MOST_PAUSE)
        self._resumes_at = loop.time() + self._pause
        loop.call_at(self._resumes_at, self._let_in)
