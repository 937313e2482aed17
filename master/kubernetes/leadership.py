"""Whether this process is the master of all jobs: its Lease, and masters of a higher term."""

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
LAPSED = "The API server takes no renewal of the master's Lease, and may be away."
SUPERSEDED = 3
"""The process's exit code, as where it reads in the Lease that it is another's."""

log = logging.getLogger("fleet")


class Leadership:
    """`end` ends the process."""

    def __init__(self, lease: Lease, term: int, end: Callable[[int], None]) -> None:
        self._lease, self._term, self._end = lease, term, end

    def is_held(self) -> bool:
        return self._lease.is_held

    async def follow(self, tell: Callable[[LeaseLost | LeaseRegained], None]) -> None:
        """Every core is told when it runs out, and when it is held again; `Lease.keep` ends where another has it."""
        was_held = True
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if self.is_held() == was_held:
                continue
            was_held = not was_held
            log.warning("the Lease %s", "is held again" if was_held else "has run out: only saved worlds begin again")
            tell(LeaseRegained() if was_held else LeaseLost(LAPSED))

    def superseded(self, term: int) -> None:
        """A master says that it has this term."""
        if term > self._term:
            log.error("there is a master of term %d: this one, of term %d, ends", term, self._term)
            self._end(SUPERSEDED)

    async def is_superseded(self, error: Superseded) -> bool:
        """False where that job alone says so, in a status that somebody else has written."""
        with contextlib.suppress(ApiError):
            if not await self._lease.lift(error.term, error.made):
                log.error("%s: but this process holds the Lease, which is older than the job", error)
                return False
        log.error("%s: this process is no longer the master", error)
        self._end(1)
        return True
