"""Serves /healthz and /readyz of one replica, and to authorized readers /metrics and the jobs' recordings."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from aiohttp import web

from outrider.master.kubernetes.api.client import Api
from outrider.master.kubernetes.auth import metrics_readers
from outrider.master.kubernetes.auth.metrics_readers import Readers
from outrider.master.service import metrics
from outrider.runtime.http import failure
from outrider.wire.ids import JobName

if TYPE_CHECKING:
    from outrider.master.kubernetes.controller import Fleet

RECORDING = "/v1/namespaces/{namespace}/jobs/{name}/recording"


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
            application.add_routes([web.get("/metrics", self._metrics), web.get(RECORDING, self._recording)])
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
        scrape = metrics.Scrape(jobs, time.monotonic(), self._api.requests, self.fleet is not None, refused)
        return web.Response(body=await asyncio.to_thread(scrape.text), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def _recording(self, request: web.Request) -> web.StreamResponse:
        """The journal of a job as a recording (`outrider bundle`)."""
        assert self._readers is not None
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        access = metrics_readers.recording_of(namespace, name)
        no_reader = await self._readers.why_refused(request.headers.get("Authorization", ""), access)
        if no_reader is not None:
            return no_reader.response()
        if self.fleet is None:
            return failure(
                503, "this replica does not lead: read the recording from the pod with outrider.dev/leader=true"
            )
        key = JobName(f"{namespace}/{name}")
        taken = self.fleet.attempts.journal_of(key, self.fleet.running.get(key))
        if taken is None:
            why = "it does not run this job, and it is not one of the last that have ended"
            return failure(404, f"this master has no journal of {key}: {why}")
        # imported only if requested, because the webhook's process has this module too
        from outrider.master.service.http import recording_response

        return await recording_response(request, taken)
