"""One service process: a real core between an inbox and a modelled shell, on a clock of its own.

The shell's laws are those of runtime.pump: what has arrived is told before time is judged, and a pause is told as
Stalled after that. A process that is stopped (SIGSTOP) keeps what arrives; its clock runs on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.world import World

SPIN = 2000
"""Wake-ups within one simulated second above which a core is taken to spin."""


class Process:
    stalled: Callable[[float], Any]
    woke: Callable[[], Any]

    def __init__(self, world: World, name: str, core: Any, state: Any) -> None:
        self.world, self.name, self.core, self.state = world, name, core, state
        self.alive = True
        self.event: Any = None
        """What the actions that are performed now follow from."""
        self.paused_at: float | None = None
        self.stalled_at = 0.0
        self.thawed_at = 0.0
        """When it last went on, or its clock had jumped."""
        self._pauses = 0
        self._inbox: deque[Any] = deque()
        self._busy = False
        self._armed: float | None = None
        self._deadline: float | None = None
        """The core's own, behind what it was told last."""
        self._wakes = (0, 0)
        self._origin = world.rng.uniform(10, 1e5)
        self._rate = 1 + world.rng.uniform(-2e-4, 2e-4)

    # -- time
    def clock(self) -> float:
        return self._origin + self.world.time.now * self._rate

    def jump(self, seconds: float) -> None:
        """Its clock goes on by so many seconds at once, as in a machine that was suspended."""
        if self.alive and self.paused_at is None:
            self._origin += seconds
            self.thawed_at = self.world.time.now
            self._judge(seconds)

    def pause(self, seconds: float) -> None:
        if not self.alive or self.paused_at is not None:
            return
        self.paused_at = self.world.time.now
        self._pauses += 1
        self.world.time.after(seconds, self._thaw, self._pauses)

    def _thaw(self, pause: int) -> None:
        if not self.alive or self.paused_at is None or pause != self._pauses:
            return
        lost = self.world.time.now - self.paused_at
        self.paused_at, self.thawed_at = None, self.world.time.now
        self._run()
        if self.alive and lost > 0.25:
            self._judge(lost)
        self.thawed()

    def thawed(self) -> None:
        """For shells that look around after a pause."""

    def _judge(self, lost: float) -> None:
        self.stalled_at = self.world.time.now
        self.post(self.stalled(lost))
        self._armed = None
        self._arm()

    def end(self) -> None:
        self.alive = False
        self._inbox.clear()

    # -- events
    def post(self, event: Any) -> None:
        if self.alive:
            self._inbox.append(event)
            if self.paused_at is None and not self._busy:
                self._run()

    def _run(self) -> None:
        self._busy = True
        world, core = self.world, self.core
        while self._inbox and self.alive:
            event = self._inbox.popleft()
            self.event, now = event, self.clock()
            self.reads(event)
            world.note(self.name, now, ">", event)
            actions = core.step(self.state, event, now)
            core.check(self.state, actions)
            for action in actions:
                world.note(self.name, now, "<", action)
                self.perform(action)
        self._busy = False
        self._arm()

    def reads(self, event: Any) -> None:
        """For shells that keep books of what their core was told."""

    def perform(self, action: Any) -> None:
        raise NotImplementedError

    # -- deadlines
    def _arm(self) -> None:
        if not self.alive or self.paused_at is not None:
            return
        deadline = self._deadline = self.core.next_deadline(self.state)
        if deadline is None:
            return
        when = max((deadline - self._origin) / self._rate + 1e-6, self.world.time.now + 1e-6)
        if self._armed is None or when < self._armed:
            self._armed = when
            self.world.time.at(when, self._wake, when)

    def _wake(self, when: float) -> None:
        if self._armed != when or not self.alive:
            return
        self._armed = None
        if self.paused_at is not None:
            return
        deadline = self._deadline  # nothing has happened to the core since
        if deadline is not None and deadline <= self.clock():
            self._count_wakes()
            self.post(self.woke())
        else:
            self._arm()

    def _count_wakes(self) -> None:
        second, count = self._wakes
        now = int(self.world.time.now)
        self._wakes = (now, count + 1 if second == now else 1)
        if self._wakes[1] > SPIN:
            self.world.broken(f"{self.name} spins: {SPIN} wake-ups in one second")
