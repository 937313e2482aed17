"""Serves /healthz and /readyz of one replica, and /metrics of a master to authorized readers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiohttp import web

from outrider.master.kubernetes.api.client import Api
from outrider.master.kubernetes.auth.metrics_readers import Readers
from outrider.master.service import metrics

if TYPE_CHECKING:
    from outrider.master.kubernetes.controller import Fleet


class Health:
    """A replica is ready when it has what it needs; it need not lead. `readers`: None if metrics are not served."""

    def __init__(self, api: Api, readers: Readers | None = None) -> None:
        self._api, self._readers = api, readers
        self.is_ready = self.is_leaving = False
        self.fleet: Fleet | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, port: int) -> int:
        """Returns the port. If `port` is 0, the system chooses one each for IPv4 and IPv6: IPv4's is returned."""
        application = web.Application()
        application.add_routes([web.get("/healthz", self._healthy), web.get("/readyz", self._readyz)])
        if self._readers is not None:
            application.add_routes([web.get("/metrics", self._metrics)])
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, port=port).start()
        return int(min(self._runner.addresses, key=len)[1])  # (address, port) before IPv6's four

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthy(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if self.is_ready and not self.is_leaving:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="not ready\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        assert self._readers is not None
        no_reader = await self._readers.why_refused(request.headers.get("Authorization", ""))
        if no_reader is not None:
            return no_reader.response()
        jobs = [job.state for job in self.fleet.running.values()] if self.fleet is not None else []
        sidecars = self.fleet.sidecars if self.fleet is not None else None
        refused = sidecars.refused if sidecars is not None else {}
        text = metrics.text(jobs, time.monotonic(), self._api.requests, self.fleet is not None, refused)
        return web.Response(body=text, headers={"Content-Type": metrics.CONTENT_TYPE})
