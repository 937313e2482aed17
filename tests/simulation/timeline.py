"""Simulated time: a heap of things to do. Nothing here sleeps, and no two runs of one seed differ."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Timeline:
    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def after(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        self.at(self.now + seconds, do, *args)

    def at(self, when: float, do: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, do, args))

    def next(self) -> None:
        """Does the earliest thing; equal moments go in the order in which they were asked for."""
        self.now, _, do, args = heapq.heappop(self._heap)
        do(*args)
