"""One job that lives through several faults, each a test of its own by the sentence that is its name.

A job takes seconds to start and a fault a few tenths of one. What one fault leaves broken ends the story: whatever came
behind it would fail as well, each after minutes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Story:
    def __init__(self, subtests: pytest.Subtests) -> None:
        self._subtests = subtests
        self._is_broken = False

    @contextmanager
    def chapter(self, about: Callable[..., object]) -> Iterator[None]:
        """What this machine cannot do may be skipped, and the story goes on."""
        assert not self._is_broken, "the faults behind this one were not played"
        with self._subtests.test(about.__name__.strip("_").replace("_", " ")):
            try:
                yield
            except Exception:
                self._is_broken = True
                raise


def live_through(subtests: pytest.Subtests, job: Any, *faults: Callable[[Any], object]) -> None:
    story = Story(subtests)
    for fault in faults:
        with story.chapter(fault):
            fault(job)


async def lives_through(subtests: pytest.Subtests, job: Any, *faults: Callable[[Any], Awaitable[object]]) -> None:
    """The same, of faults that are coroutine functions."""
    story = Story(subtests)
    for fault in faults:
        with story.chapter(fault):
            await fault(job)
