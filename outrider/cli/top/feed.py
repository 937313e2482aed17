"""Asks for the documents of `outrider top` on threads of their own, so that a slow answer delays no key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from outrider.cli.errors import UserError
from outrider.cli.top.sources import Document, Source
from outrider.cli.top.view import JOBS, View


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest answers."""

    jobs: list[Document] = field(default_factory=list)
    status: Document | None = None
    """The status document of the job that is shown; None: not read yet."""
    at: float | None = None
    """Monotonic time of the newest answer; None: there was none."""
    problem: str = ""
    """Why the last request failed; empty if it did not."""
    events: list[Document] = field(default_factory=list)
    events_problem: str = ""
    stacks: Document | None = None
    """The answers of all members; None while they are awaited."""
    stacks_problem: str = ""


def asked(source: Source, view: View, seen: Seen, now: Callable[[], float] = time.monotonic) -> Seen:
    """What is seen after one more request for what the view shows. What could not be read again stays as it was."""
    try:
        if view.page == JOBS:
            return replace(seen, jobs=source.jobs(), at=now(), problem="")
        seen = replace(seen, status=source.status(view.job), at=now(), problem="")
    except UserError as error:
        seen = replace(seen, problem=error.message)
    try:
        return replace(seen, events=source.events(view.job), events_problem="")
    except UserError as error:
        return replace(seen, events_problem=error.message)


def asked_for_stacks(source: Source, job: str, seen: Seen) -> Seen:
    """What is seen after a request for the stacks of all ranks."""
    try:
        return replace(seen, stacks=source.stacks(job), stacks_problem="")
    except UserError as error:
        return replace(seen, stacks_problem=error.message)


class Feed:
    """Asks again and again for what the view shows. `changed` is called on another thread after each answer."""

    def __init__(self, source: Source, view: View, seen: Seen, changed: Callable[[], None]) -> None:
        self._source, self._view, self._seen, self._changed = source, view, seen, changed
        self._condition = threading.Condition()
        threading.Thread(target=self._ask, daemon=True).start()

    @property
    def seen(self) -> Seen:
        with self._condition:
            return self._seen

    def look_at(self, view: View) -> None:
        """Ask for what this view shows from now on."""
        with self._condition:
            before, self._view = self._view, view
            is_other = view.job != before.job and view.page != JOBS
            if is_other:
                self._seen = Seen(jobs=self._seen.jobs)
            if is_other or (view.page == JOBS) != (before.page == JOBS):
                self._condition.notify_all()
        if view.asked != before.asked:
            with self._condition:
                self._seen = replace(self._seen, stacks=None, stacks_problem="")
            threading.Thread(target=self._ask_for_stacks, args=(view,), daemon=True).start()

    def _ask(self) -> None:
        while True:
            with self._condition:
                view, seen = self._view, self._seen
            found = asked(self._source, view, seen)
            with self._condition:
                if self._is_still_asked(view):
                    self._seen = replace(found, stacks=self._seen.stacks, stacks_problem=self._seen.stacks_problem)
            self._changed()
            with self._condition:
                if self._is_still_asked(view):
                    self._condition.wait(self._source.every)

    def _is_still_asked(self, view: View) -> bool:
        """Whether an answer for this view is one for the view of now."""
        now = self._view
        return (view.page == JOBS) == (now.page == JOBS) and (now.page == JOBS or view.job == now.job)

    def _ask_for_stacks(self, view: View) -> None:
        found = asked_for_stacks(self._source, view.job, Seen())
        with self._condition:
            if (view.job, view.asked) == (self._view.job, self._view.asked):
                self._seen = replace(self._seen, stacks=found.stacks, stacks_problem=found.stacks_problem)
        self._changed()
