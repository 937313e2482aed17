"""An API server that is not well: a real HTTP server that answers what a test has written down for it, in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from kubernetes.aio import client as kubernetes_client

from outrider.master.kubernetes.api.client import Api

Answer = Callable[[web.Request], Any]


class UnwellServer:
    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str]] = []
        self.queries: list[dict[str, str]] = []
        self.agents: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        self.queries.append(dict(request.query))
        self.agents.append(request.headers.get("User-Agent", ""))
        answer = self.answers.pop(0) if self.answers else hang()
        response: web.StreamResponse = await answer(request)
        return response


def says(document: Any, status: int = 200) -> Answer:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(document, status=status)

    return answer


def refuses(status: int, reason: str = "", message: str = "") -> Answer:
    return says({"kind": "Status", "reason": reason, "message": message, "code": status}, status)


def raw(body: bytes, status: int = 200) -> Answer:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, status=status)

    return answer


def streams(*changes: Any) -> Answer:
    """A watch that shows these and ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for change in changes:
            await response.write(json.dumps(change).encode() + b"\n")
        await response.write_eof()
        return response

    return answer


def hang() -> Answer:
    async def answer(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    return answer


def api_at(host: str, seconds: float = 10.0, silence: float = 10.0) -> Api:
    return Api(kubernetes_client.ApiClient(kubernetes_client.Configuration(host=host)), seconds, silence)


@asynccontextmanager
async def unwell(
    *answers: Answer, seconds: float = 10.0, silence: float = 10.0
) -> AsyncIterator[tuple[UnwellServer, Api]]:
    server = UnwellServer(*answers)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    api = api_at(f"http://127.0.0.1:{port}", seconds, silence)
    try:
        yield server, api
    finally:
        await api.close()
        await runner.cleanup()
