"""/healthz, /readyz and /metrics of one replica."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiohttp import web

from master.core import status
from master.shell.http import metrics

if TYPE_CHECKING:
    from master.shell.kubernetes.fleet import Fleet


class Health:
    """Ready is a replica whose webhook answers; it need not be the one that leads."""

    def __init__(self) -> None:
        self.is_ready = False
        self.fleet: Fleet | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, port: int) -> None:
        application = web.Application()
        application.add_routes(
            [web.get("/healthz", self._healthy), web.get("/readyz", self._readyz), web.get("/metrics", self._metrics)]
        )
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, port=port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthy(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n") if self.is_ready else web.Response(status=503, text="not ready yet\n")

    async def _metrics(self, _request: web.Request) -> web.Response:
        running = self.fleet.running.values() if self.fleet is not None else ()
        leads = f"outrider_leads {int(self.fleet is not None)}\n"
        now = time.monotonic()
        return web.Response(text=leads + "".join(metrics(status.document(job.state, now)) for job in running))
