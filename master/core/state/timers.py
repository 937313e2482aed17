"""Deadlines in a heap whose stale entries are dropped when they reach the top.

A report must cost O(1) however large the job is, so entries are never searched or removed from the middle: setting a
deadline again pushes a new entry, and the old one is skipped later. A sign of life does not even set a deadline: when
the old deadline comes, the failure detector checks whether it still applies and sets the next one.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

Key = tuple[str, str]
"""The kind of a deadline and its subject: `("order", "worker-3/17")`, `("hear", "worker-3")`."""


@dataclass(slots=True)
class Deadlines:
    _at: dict[Key, float] = field(default_factory=dict)
    _heap: list[tuple[float, Key]] = field(default_factory=list)

    def set(self, key: Key, at: float) -> None:
        """Sets the deadline of `key`, which replaces an earlier one."""
        if self._at.get(key) != at:
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))

    def cancel(self, key: Key) -> None:
        self._at.pop(key, None)

    def at(self, key: Key) -> float | None:
        return self._at.get(key)

    def of(self, kinds: tuple[str, ...]) -> list[tuple[Key, float]]:
        """All deadlines of these kinds in the order of their keys; walks over all deadlines, so use it rarely."""
        return sorted((key, at) for key, at in self._at.items() if key[0] in kinds)

    def next(self) -> float | None:
        """The earliest deadline that still applies; None if there is none."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def is_late(self, since: float) -> bool:
        """Whether a deadline before this moment has not been handled."""
        due = self.next()
        return due is not None and due < since

    def take_due(self, now: float) -> list[Key]:
        """Removes and returns the keys that are due, the earliest first."""
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
