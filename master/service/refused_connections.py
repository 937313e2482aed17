"""Logs refused connections, at a limited rate whatever is sent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from outrider.runtime.logs import announce
from outrider.wire.ids import MemberId

LINES, SECONDS = 20, 10.0
"""At most `LINES` lines in `SECONDS` seconds; further ones are counted."""

log = logging.getLogger("sidecars")


class RefusalLog:
    """Logs the refusals that `Sidecars` reports. They appear nowhere else, as their text may come from an intruder."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since, self._lines, self._left_out = clock(), 0, 0

    def __call__(self, member: MemberId | None, reason: str) -> None:
        if self._clock() - self._since >= SECONDS:
            self._start_window()
        self._lines += 1
        if self._lines > LINES:
            self._left_out += 1
            return
        announce(log, "SidecarRejected", reason, "warning", {"member": member} if member else {})

    def _start_window(self) -> None:
        if self._left_out:
            text = f"{self._left_out} more connections were refused; each was sent the reason"
            announce(log, "SidecarRejected", text, "warning")
        self._since, self._lines, self._left_out = self._clock(), 0, 0
