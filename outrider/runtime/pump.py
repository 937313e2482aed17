"""Carries events into a core and its actions out: inbox → `core.step` → `effects.perform`.

Three laws hold here, so that no core has to think about them:

* *Everything that has arrived is handled before deadlines.* A process that was paused for ten seconds finds ten seconds
  of reports in its sockets. If it checked deadlines before it has read them, it would declare living members dead. So a
  deadline is checked only after all sources are drained and the inbox is empty. If messages never stop, this takes 2 s
  at most; sockets are read in turns, so that the messages of all peers are among them.
* *A pause of this process is not a silence of others.* If the loop did not run when it should have, the core gets
  `Stalled(seconds)` after the draining, and may forgive silence for that long.
* *Failure is an event.* An action that raises becomes `ActionFailed`. An exception in the core itself is a bug: its
  state can no longer be trusted, so the journal is written and `run` returns an exit code with which the service ends
  and is restarted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from outrider.runtime.journal import Journal

State = TypeVar("State")
Event = TypeVar("Event")
Action = TypeVar("Action")
ActionIn = TypeVar("ActionIn", contravariant=True)

CORE_FAILED = 70
"""Exit code of a service whose core raised (EX_SOFTWARE); its parent restarts it."""
LONGEST_WAIT = 0.5
"""The most seconds between two looks at the clock; a pause could hide inside a longer wait."""
STALL = 0.25
"""Seconds of lateness above which the loop counts as stalled; less is ordinary scheduling on a busy machine."""
LONGEST_SETTLING = 2.0
"""The most seconds for which arriving events are handled before deadlines are checked."""
BATCH = 500
"""The most events handled before the sockets are read again."""

log = logging.getLogger("pump")


class Effects(Protocol[ActionIn]):
    """Performs actions. A coroutine runs as a separate task; any exception becomes `ActionFailed`."""

    def perform(self, action: ActionIn, /) -> Coroutine[object, object, None] | None: ...


@dataclass(frozen=True, slots=True)
class Core(Generic[State, Event, Action]):
    """The functions of a core that the pump calls, and the events for time and failure."""

    step: Callable[[State, Event, float], list[Action]]
    next_deadline: Callable[[State], float | None]
    woke: Callable[[], Event]
    stalled: Callable[[float], Event]
    failed: Callable[[Action, str], Event]
    describe: Callable[[State], str] = lambda _state: ""
    """Returns a short name of the state; each change of it is a transition in the journal."""
    check: Callable[[State], None] = lambda _state: None
    """Raises if an invariant does not hold; called after every step."""


class Pump(Generic[State, Event, Action]):
    """One core with its inbox on one event loop. All methods must be called on the loop's thread."""

    def __init__(
        self,
        core: Core[State, Event, Action],
        state: State,
        journal: Journal,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = state
        self._core = core
        self._journal = journal
        journal.follow(lambda: self.state)
        self._clock = clock
        self._effects: Effects[Action] | None = None
        self._inbox: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._sources: list[Callable[[], int]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._exit_code: int | None = None
        self.failure = ""
        """Why the core can no longer be trusted; empty if it can."""
        self._stalled = 0.0
        self._seen_at = clock()

    def put(self, event: Event) -> None:
        self._inbox.append(event)
        self._arrived.set()

    def drain_before_judging(self, source: Callable[[], int]) -> None:
        """Add a source that is drained before deadlines are checked: a function that puts all it has into the inbox and
        returns how many events these were."""
        self._sources.append(source)

    def stop(self, exit_code: int) -> None:
        """End `run` with this exit code after the actions of the current step; only the first call counts."""
        if self._exit_code is None:
            self._exit_code = exit_code
        self._arrived.set()

    async def run(self, effects: Effects[Action]) -> int:
        """Run until `stop` is called or the core raises; returns the exit code of the service."""
        self._effects = effects
        self._seen_at = self._clock()
        while self._exit_code is None:
            await self._take_inbox()
            if self._exit_code is None and self._must_judge():
                await self._judge()
            if self._exit_code is None:
                await self._wait()
        await self._finish_tasks()
        return self._exit_code

    # -- events
    async def _take_inbox(self) -> None:
        taken = 0
        while self._inbox and self._exit_code is None:
            self._step(self._inbox.popleft())
            taken += 1
            if taken % BATCH == 0:
                await asyncio.sleep(0)
        self._note_stall(expected=0.0)

    def _step(self, event: Event) -> None:
        now = self._clock()
        self._journal.event(now, event)
        before = self._core.describe(self.state)
        try:
            actions = self._core.step(self.state, event, now)
            self._core.check(self.state)
        except Exception as error:  # a bug, whatever its type: the state can no longer be trusted
            self.failure = f"{_sentence(error)}, on {type(event).__name__}"
            log.exception("the core failed on %s; writing the journal and ending the service", type(event).__name__)
            self._journal.write()
            self.stop(CORE_FAILED)
            return
        after = self._core.describe(self.state)
        if after != before:
            self._journal.transition(now, before, after)
        for action in actions:
            self._journal.action(now, action)
            self._perform(action)

    def _perform(self, action: Action) -> None:
        assert self._effects is not None
        try:
            work = self._effects.perform(action)
        except Exception as error:  # the outside may fail in any way; the core decides what that means
            self.put(self._core.failed(action, _sentence(error)))
            return
        if work is not None:
            task = asyncio.ensure_future(self._finish(action, work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _finish(self, action: Action, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception as error:  # as in _perform
            self.put(self._core.failed(action, _sentence(error)))

    async def _finish_tasks(self, seconds: float = 2.0) -> None:
        """Give running tasks a moment to end, so that the last status is not lost."""
        if self._tasks:
            _done, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # -- time
    def _must_judge(self) -> bool:
        deadline = self._core.next_deadline(self.state)
        return self._stalled > 0 or (deadline is not None and deadline <= self._clock())

    async def _judge(self) -> None:
        await self._settle()
        if self._exit_code is not None:
            return
        if self._stalled > 0:
            seconds, self._stalled = self._stalled, 0.0
            self._step(self._core.stalled(seconds))
        deadline = self._core.next_deadline(self.state)
        if self._exit_code is None and deadline is not None and deadline <= self._clock():
            self._step(self._core.woke())

    async def _settle(self) -> None:
        """Handle everything that has arrived: drain the sources, and poll the loop until nothing more comes, or for
        LONGEST_SETTLING seconds at most; by then the messages of all peers have been read."""
        until = self._clock() + LONGEST_SETTLING
        while self._exit_code is None and self._clock() < until:
            drained = sum(source() for source in self._sources)
            for _ in range(
                3
            ):  # one turn polls the descriptors, the next runs their callbacks, the third the tasks that those started
                await asyncio.sleep(0)
            if not drained and not self._inbox:
                return
            await self._take_inbox()

    async def _wait(self) -> None:
        deadline = self._core.next_deadline(self.state)
        now = self._clock()
        seconds = LONGEST_WAIT if deadline is None else max(0.0, min(LONGEST_WAIT, deadline - now))
        if self._inbox:
            seconds = 0.0
        self._arrived.clear()
        if seconds > 0 and self._exit_code is None:
            timer = asyncio.get_running_loop().call_later(seconds, self._arrived.set)
            await self._arrived.wait()
            timer.cancel()
        else:
            await asyncio.sleep(0)
        self._note_stall(expected=seconds)

    def _note_stall(self, expected: float) -> None:
        now = self._clock()
        late = now - self._seen_at - expected
        self._seen_at = now
        if late > STALL:
            self._stalled += late


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
