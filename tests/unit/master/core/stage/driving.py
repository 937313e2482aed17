"""Time and order: events into the core, actions out of it, and a queue of later events."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from outrider.master.core.actions import Action, Send
from outrider.master.core.events import Event, SpecChanged, Woke
from outrider.master.core.generation import formation
from outrider.master.core.job_kinds import check, next_deadline, step
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.job import GATHERING, State
from outrider.master.core.status import invariants
from outrider.runtime.journal import line


def check_waits(state: State) -> None:
    """Asserts that after a step a job without a generation has a reason for it that users can read."""
    assert state.stage != GATHERING or formation.of(state).reason


class Actions(list[Action]):
    """All actions in order; those of one kind are known without a walk over all, as tests ask after each event."""

    def __init__(self) -> None:
        super().__init__()
        self._of_a_kind: dict[type, list[Any]] = defaultdict(list)

    def extend(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self.append(action)
            self._of_a_kind[type(action.message if isinstance(action, Send) else action)].append(action)

    def clear(self) -> None:
        super().clear()
        self._of_a_kind.clear()

    def of(self, kind: type) -> list[Any]:
        """The actions of exactly this type, or those that send a message of it."""
        assert not kind.__subclasses__(), f"actions of types derived from {kind.__name__} would be missing"
        return self._of_a_kind[kind]


class Stage:
    """A core with its own clock; `now` grows only in `run` and `until`."""

    def __init__(self, spec: JobSpec, now: float) -> None:
        self.spec, self.now = spec, now
        self.state = self.made(spec)
        self.actions = Actions()
        self.story: list[tuple[float, str, Event | Action]] = []
        """All events (`>`) and actions (`<`) with their moments."""
        self.begins_at = 0
        """The index in `story` at which the transcript starts; what is before only leads up to it."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def tell(self, event: Event) -> list[Action]:
        """Makes one step of the core and performs its actions."""
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
        """Lets this many seconds pass."""
        self.until(lambda: False, seconds, must=False)

    def until(self, is_true: Callable[[], bool], limit: float = 60.0, *, must: bool = True) -> float:
        """Runs until the condition is true; returns how long it took."""
        begun = self.now
        end = self.now + limit
        while not is_true():
            deadline = self.deadline()
            moments = [self._queue[0][0]] if self._queue else []
            due = min([*moments, *([deadline] if deadline is not None else [])], default=float("inf"))
            if due > end:
                self.now = end
                assert not must, "it did not come true in time:\n" + self.history()
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
        """The state of the core before Began."""
        return State()

    def _perform(self, action: Action) -> None:
        """Performs an action outside the core."""
        raise NotImplementedError

    def history(self, last: int = 60) -> str:
        """The last events and actions, one on each line."""
        return "\n".join(line(*each) for each in self.story[-last:])
