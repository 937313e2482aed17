"""An API server that has documents: a real HTTP server, by path, with merge patches and lists by label."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

from aiohttp import web

from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api
from tests.integration.kubernetes.unwell_server import api_at

VERSION = {"major": "1", "minor": "36"}


class DocumentServer:
    def __init__(self, documents: Mapping[str, Document]) -> None:
        self.documents = {"/version": VERSION, **deepcopy(dict(documents))}
        self.asked: list[tuple[str, str]] = []
        self.reviews: dict[str, Callable[[Document], Document]] = {}
        """By path, the status of what is created there; it is not stored."""
        self.before_reviewing: Callable[[Document], Awaitable[object]] | None = None
        """What a review waits for."""
        self.ends = asyncio.Event()
        """Set by a test at its end, for what it had waiting."""

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((request.method, request.path))
        found = self.documents.get(request.path)
        if request.method == "GET" and found is not None:
            return web.json_response(found)
        if request.method == "GET" and (selector := request.query.get("labelSelector")):
            return web.json_response({"items": list(self._labelled(request.path, selector))})
        if request.method == "PATCH" and found is not None:
            _merge(found, await request.json())
            return web.json_response(found)
        if request.method == "POST" and request.path in self.reviews:
            review = await request.json()
            if self.before_reviewing is not None:
                await self.before_reviewing(review["spec"])
            return web.json_response({**review, "status": self.reviews[request.path](review["spec"])}, status=201)
        if request.method == "POST":
            made = await request.json()
            return web.json_response(self.documents.setdefault(f"{request.path}/{made['metadata']['name']}", made))
        return web.json_response({"kind": "Status", "reason": "NotFound", "code": 404}, status=404)

    def _labelled(self, folder: str, selector: str) -> Any:
        key, _, value = selector.partition("=")
        for path, document in self.documents.items():
            labels = (document.get("metadata") or {}).get("labels") or {}
            if path.rpartition("/")[0] == folder and labels.get(key) == value:
                yield document


def _merge(document: Document, patch: Document) -> None:
    for key, value in patch.items():
        if isinstance(value, dict):
            _merge(document.setdefault(key, {}), value)
        else:
            document[key] = value


@asynccontextmanager
async def having(documents: Mapping[str, Document]) -> AsyncIterator[tuple[DocumentServer, Api]]:
    server = DocumentServer(documents)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = api_at(f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        yield server, api
    finally:
        await api.close()
        await runner.cleanup()
