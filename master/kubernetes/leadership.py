"""Tracks whether this process is the master: by its Lease, and by masters of a higher term."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from outrider.master.core.events import LeaseLost, LeaseRegained
from outrider.master.kubernetes.api.client import ApiError
from outrider.master.kubernetes.lease import Lease
from outrider.master.kubernetes.status_writer import Superseded

LOOK_EVERY = 0.5
LAPSED = "The master could not renew its Lease; the API server may be down."
SUPERSEDED = 3
"""Exit code of a process that has been superseded, as when another process holds the Lease."""

log = logging.getLogger("fleet")


class Leadership:
    """`end` ends the process."""

    def __init__(self, lease: Lease, term: int, end: Callable[[int], None]) -> None:
        self._lease, self._term, self._end = lease, term, end

    def is_held(self) -> bool:
        return self._lease.is_held

    async def follow(self, report: Callable[[LeaseLost | LeaseRegained], None]) -> None:
        """Reports when the Lease runs out and when it is held again; if another process has it, `Lease.keep` ends."""
        was_held = True
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if self.is_held() == was_held:
                continue
            was_held = not was_held
            lapsed = "has run out; until it is renewed, jobs can only restart their saved generation"
            log.warning("the Lease %s", "is held again" if was_held else lapsed)
            report(LeaseRegained() if was_held else LeaseLost(LAPSED))

    def superseded(self, term: int) -> None:
        """Ends this process if another master has announced a higher term."""
        if term > self._term:
            log.error("a master of term %d exists: this one, of term %d, ends", term, self._term)
            self._end(SUPERSEDED)

    async def is_superseded(self, error: Superseded) -> bool:
        """Ends this process if a newer master exists; false if only that job's status, written by another program,
        claims so."""
        with contextlib.suppress(ApiError):
            if not await self._lease.lift(error.term, error.made):
                log.error("%s; ignored, as this process holds the Lease, which is older than the job", error)
                return False
        log.error("%s; this process is no longer the master and ends", error)
        self._end(1)
        return True
