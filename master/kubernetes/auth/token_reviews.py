"""The queue of Hellos whose tokens wait for review by the API server.

Addresses take turns, so that an address with many Hellos delays only itself. If the queue is full, the address with the
most entries loses its newest one. After a refused token, an address gets one review at a time, with a pause. Pods that
share an address (behind NAT) with an intruder are thus slowed down, never locked out.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

AT_ONCE = 20
"""Most reviews at one time."""
OF_AN_ADDRESS = 10
"""Most reviews of one address at one time."""
WAITING = 4096
"""Most Hellos in the queue."""
SUSPECTS = 10_000
"""Most remembered addresses whose last token was refused."""
LEAST_PAUSE, MOST_PAUSE = 0.05, 0.25
"""Shortest and longest pause in seconds between a refused token and the next review for its address."""


@dataclass(frozen=True, slots=True)
class Question:
    address: str
    ask: Callable[[], Awaitable[bool]]
    """Reviews the token; false only if the token was refused."""
    is_moot: Callable[[], bool]
    """Whether the connection that waits for the answer is gone."""
    give_up: Callable[[], None]
    """Called instead of `ask` if the queue is full."""


class Reviews:
    def __init__(self) -> None:
        self._waiting: dict[str, deque[Question]] = {}
        self._open: Counter[str] = Counter()
        self._suspects: dict[str, tuple[float, float]] = {}
        """For each address whose last token was refused: the pause in seconds, and when it is over."""
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, question: Question) -> None:
        if sum(map(len, self._waiting.values())) >= WAITING and not self._make_room(question.address):
            question.give_up()
            return
        self._waiting.setdefault(question.address, deque()).append(question)
        self._begin()

    def _make_room(self, address: str) -> bool:
        """Drops moot questions, otherwise the newest of the address that has the most; false if that is `address`."""
        for of, questions in list(self._waiting.items()):
            kept = deque(each for each in questions if not each.is_moot())
            self._waiting[of] = kept
            if not kept:
                del self._waiting[of]
        if sum(map(len, self._waiting.values())) < WAITING:
            return True
        longest = max(self._waiting, key=lambda of: len(self._waiting[of]))
        if longest == address:
            return False
        self._waiting[longest].pop().give_up()
        return True

    def _begin(self) -> None:
        while self._open.total() < AT_ONCE and (question := self._next()) is not None:
            self._open[question.address] += 1
            task = asyncio.ensure_future(self._ask(question))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _next(self) -> Question | None:
        """The next question of the address whose turn it is; that address then goes to the end."""
        for address in [address for address in self._waiting if self._may_ask(address)]:
            questions = self._waiting.pop(address)
            while questions:
                question = questions.popleft()
                if not question.is_moot():
                    if questions:
                        self._waiting[address] = questions
                    return question
        return None

    def _may_ask(self, address: str) -> bool:
        if address in self._suspects:
            return self._open[address] == 0 and asyncio.get_running_loop().time() >= self._suspects[address][1]
        return self._open[address] < OF_AN_ADDRESS

    async def _ask(self, question: Question) -> None:
        is_good = False
        try:
            is_good = await question.ask()
        finally:
            self._answered(question.address, is_good)

    def _answered(self, address: str, is_good: bool) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]
        last, _ = self._suspects.pop(address, (LEAST_PAUSE / 2, 0.0))
        if not is_good:
            loop, pause = asyncio.get_running_loop(), min(2 * last, MOST_PAUSE)
            if len(self._suspects) >= SUSPECTS:
                del self._suspects[next(iter(self._suspects))]
            self._suspects[address] = pause, loop.time() + pause
            loop.call_later(pause, self._begin)
        self._begin()
