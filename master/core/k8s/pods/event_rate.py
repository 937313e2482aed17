"""How fast a job may write Events. While they are few it writes each as it happens, and one a second if many come at
once.

A node that takes a hundred members with it is told in a hundred Events, which carry the moment at which each happened;
the API server need not take them in that moment.
"""

from __future__ import annotations

from dataclasses import dataclass

BURST = 10
SECONDS_APART = 1.0


@dataclass(slots=True)
class Allowance:
    """So many at once; one more each second up to that number."""

    _left: float = BURST
    _at: float = 0.0

    def take(self, now: float) -> float:
        """Uses one; returns the seconds until the next may be written."""
        self._left = min(float(BURST), self._left + max(0.0, now - self._at) / SECONDS_APART) - 1.0
        self._at = now
        return max(0.0, (1.0 - self._left) * SECONDS_APART)
