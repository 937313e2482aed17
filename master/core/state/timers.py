"""Moments at which something must be looked at again, in a heap whose stale entries are dropped when they surface.

A report must cost O(1) however large the job is, so nothing here is searched or removed from the middle: setting a
deadline anew pushes an entry and leaves the old one to be skipped. A sign of life does not even do that; whoever looks
at silence checks, when the deadline comes, whether it still stands, and sets the next one.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

Key = tuple[str, str]
"""What to look at, and whose: `("order", "17")`, `("hear", "worker-3")`."""


@dataclass(slots=True)
class Deadlines:
    _at: dict[Key, float] = field(default_factory=dict)
    _heap: list[tuple[float, Key]] = field(default_factory=list)

    def set(self, key: Key, at: float) -> None:
        """Look at `key` at this moment and no other."""
        if self._at.get(key) != at:
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))

    def cancel(self, key: Key) -> None:
        self._at.pop(key, None)

    def at(self, key: Key) -> float | None:
        return self._at.get(key)

    def of(self, kinds: tuple[str, ...]) -> list[tuple[Key, float]]:
        """All of these kinds, in the order of their keys: a walk over everything, for rare moments."""
        return sorted((key, at) for key, at in self._at.items() if key[0] in kinds)

    def next(self) -> float | None:
        """The earliest moment that still stands."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def is_late(self, since: float) -> bool:
        """Something was due before this moment and has not been looked at."""
        due = self.next()
        return due is not None and due < since

    def take_due(self, now: float) -> list[Key]:
        """Removes and returns what is due, earliest first."""
        due: list[Key] = []
        self._drop_stale()
        while self._heap and self._heap[0][0] <= now:
            _at, key = heapq.heappop(self._heap)
            del self._at[key]
            due.append(key)
            self._drop_stale()
        return due

    def _drop_stale(self) -> None:
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
