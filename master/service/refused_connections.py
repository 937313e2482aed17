"""What is written of connections that were refused: a few lines, whoever sends how much."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from outrider.runtime.logs import announce
from outrider.wire.ids import MemberId

LINES, SECONDS = 20, 10.0
"""So many lines at most in so many seconds; what is left out is counted."""

log = logging.getLogger("sidecars")


class RefusalLog:
    """Takes refusals as `Sidecars` tells them. They go nowhere else: the text may be a stranger's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since, self._lines, self._left_out = clock(), 0, 0

    def __call__(self, member: MemberId | None, reason: str) -> None:
        if self._clock() - self._since >= SECONDS:
            self._begin_anew()
        self._lines += 1
        if self._lines > LINES:
            self._left_out += 1
            return
        announce(log, "SidecarRejected", reason, "warning", {"member": member} if member else {})

    def _begin_anew(self) -> None:
        if self._left_out:
            text = f"{self._left_out} more connections were refused, and each was told why"
            announce(log, "SidecarRejected", text, "warning")
        self._since, self._lines, self._left_out = self._clock(), 0, 0
