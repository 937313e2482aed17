"""The rate limit for a job's Events: few are written at once, and of many one per second.

If a node with a hundred members fails, there are a hundred Events. Each has the time at which it happened, so the API
server need not receive them at that time.
"""

from __future__ import annotations

from dataclasses import dataclass

BURST = 10
SECONDS_APART = 1.0


@dataclass(slots=True)
class Allowance:
    """A token bucket of `BURST` Events, refilled by one per `SECONDS_APART`."""

    _left: float = BURST
    _at: float = 0.0

    def take(self, now: float) -> float:
        """Uses one token and returns the seconds until this Event may be written."""
        self._left = min(float(BURST), self._left + max(0.0, now - self._at) / SECONDS_APART) - 1.0
        self._at = now
        return max(0.0, (1.0 - self._left) * SECONDS_APART)
