"""The sidecar's operations on this member's in-memory checkpoints."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from outrider.sidecar.shell import arena
from outrider.sidecar.shell.checkpoint_transfer import Giver, Taking
from outrider.wire.messages.checkpoints import Copy, Fetch, Fetched
from training_hooks.abi.arena import NAME, Unusable


class Checkpoints:
    def __init__(self, address: str, folder: Path) -> None:
        self._path = folder / NAME
        self._giver = Giver(address, self._path)
        self._taking: Taking | None = None
        self.port, self.key = self._giver.port, self._giver.key

    def copies(self) -> tuple[Copy, ...]:
        """The checkpoints that are complete now."""
        return arena.copies(self._path)

    def keep(self, step: int) -> None:
        with suppress(Unusable, OSError), arena.opened(self._path) as memory:
            memory.keep(step)

    async def fetch(self, order: Fetch, nproc: int) -> Fetched:
        self._taking = Taking(self._path, order, nproc)
        return await asyncio.to_thread(self._taking.run)

    def stop(self) -> None:
        """Cancels the transfer in progress, so that nothing more is written."""
        if self._taking is not None:
            self._taking.stop()

    def close(self) -> None:
        self.stop()
        self._giver.close()
