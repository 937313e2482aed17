"""Time and order: events into the core, actions out of it, a queue of what happens later."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

from outrider.master.core.actions import Action
from outrider.master.core.events import Event, SpecChanged, Woke
from outrider.master.core.generation import formation
from outrider.master.core.job_kinds import check, next_deadline, step
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.job import GATHERING, State
from outrider.master.core.status import invariants
from outrider.runtime.journal import line


def check_waits(state: State) -> None:
    """After a step no world is left unformed without a reason that users can be told."""
    assert state.stage != GATHERING or formation.of(state).reason


class Stage:
    """A core on a clock of its own. `now` grows only in `run` and `until`."""

    def __init__(self, spec: JobSpec, now: float) -> None:
        self.spec, self.now = spec, now
        self.state = self.made(spec)
        self.actions: list[Action] = []
        self.story: list[tuple[float, str, Event | Action]] = []
        """When, which way, what: `>` into the core, `<` out of it."""
        self.begins_at = 0
        """Where in it the story that is told begins: what is before only leads up to it."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def tell(self, event: Event) -> list[Action]:
        """One step of the core; what it wants done is done."""
        if isinstance(event, SpecChanged):
            self.spec = event.spec
        self.story.append((self.now, ">", event))
        actions = self.core(event)
        self.actions.extend(actions)
        for action in actions:
            self.story.append((self.now, "<", action))
            self._perform(action)
        return actions

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + seconds, next(self._order), do))

    def run(self, seconds: float) -> None:
        """Lets so much time pass."""
        self.until(lambda: False, seconds, must=False)

    def until(self, is_true: Callable[[], bool], limit: float = 60.0, *, must: bool = True) -> float:
        """Runs until something is true; returns how long it took."""
        begun = self.now
        end = self.now + limit
        while not is_true():
            deadline = self.deadline()
            moments = [self._queue[0][0]] if self._queue else []
            due = min([*moments, *([deadline] if deadline is not None else [])], default=float("inf"))
            if due > end:
                self.now = end
                assert not must, "it did not come true in time:\n" + self.told()
                break
            self.now = max(self.now, due)
            if self._queue and self._queue[0][0] <= self.now:
                heapq.heappop(self._queue)[2]()
            else:
                self.tell(Woke())
        return self.now - begun

    def core(self, event: Event) -> list[Action]:
        actions = step(self.state, event, self.now)
        check(self.state)
        check_waits(self.state)
        invariants.check_actions(self.state, actions)
        return actions

    def deadline(self) -> float | None:
        return next_deadline(self.state)

    def made(self, spec: JobSpec) -> Any:
        """The state before Began."""
        return State()

    def _perform(self, action: Action) -> None:
        """What the outside does about it."""
        raise NotImplementedError

    def told(self, last: int = 60) -> str:
        """What went in and out last."""
        return "\n".join(line(*each) for each in self.story[-last:])
