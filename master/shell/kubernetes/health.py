"""/healthz, /readyz and /metrics of one replica."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiohttp import web

from master.shell import metrics
from master.shell.kubernetes.api import Api

if TYPE_CHECKING:
    from master.shell.kubernetes.fleet import Fleet


class Health:
    """Ready is a replica whose webhook answers; it need not be the one that leads."""

    def __init__(self, api: Api) -> None:
        self._api = api
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
        jobs = [job.state for job in self.fleet.running.values()] if self.fleet is not None else []
        text = metrics.text(jobs, time.monotonic(), self._api.requests, self.fleet is not None)
        return web.Response(body=text, headers={"Content-Type": metrics.CONTENT_TYPE})
