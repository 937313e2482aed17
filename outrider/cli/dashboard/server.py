"""The dashboard's server: the page, its documents as server-sent events, and orders with the user's own rights."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from importlib import resources
from typing import Any, TypeVar

from aiohttp import web

import outrider
from outrider.cli.dashboard import page
from outrider.cli.dashboard.access import Access, refused
from outrider.cli.dashboard.feed import Feeds, Message
from outrider.cli.dashboard.sources import ORDERS, Source
from outrider.cli.errors import UserError
from outrider.report.page import SHARED

LOOPBACK = "127.0.0.1"
QUIET = 10.0
"""Seconds after which a line shows that the stream is alive."""
BODY_BYTES = 4096
MOST_CONNECTIONS = 200
"""Others of this machine reach the port too: theirs must not use up the files of the process."""
TYPES = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}
Found = TypeVar("Found")
SILENT = logging.getLogger("dashboard.requests")
"""What anybody sends to the port makes no lines in the user's terminal."""
SILENT.disabled = True


class Server:
    """Serves one source on loopback until it is closed."""

    def __init__(self, source: Source, job: str | None) -> None:
        self.access = Access()
        self._source, self._job = source, job
        self._feeds = Feeds(source)
        self._closing = asyncio.Event()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=BODY_BYTES, middlewares=[self.access.check])
        of_member = "/api/jobs/{job}/members/{member}"
        application.add_routes([
            web.get("/", self._index),
            web.get("/assets/{name}", self._asset),
            web.get("/api/start", self._start),
            web.get("/api/jobs", self._jobs),
            web.get("/api/jobs/{job}", self._stream),
            web.get(f"{of_member}/stack", self._stack),
            web.get(f"{of_member}/lines", self._lines),
            web.post("/api/jobs/{job}/{what}", self._order),
        ])  # fmt: skip
        return application

    @contextlib.asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[str]:
        """Listens on a port, 0 for a free one; gives the address with the token. Raises OSError."""
        runner = web.AppRunner(self.application(), access_log=None, logger=SILENT, shutdown_timeout=1.0)
        await runner.setup()
        served = runner.server
        assert served is not None

        def connected() -> asyncio.Protocol:
            return served() if len(served.connections) < MOST_CONNECTIONS else _Refusing()

        listening = None
        try:
            listening = await asyncio.get_running_loop().create_server(connected, LOOPBACK, port)
            self.access.port = listening.sockets[0].getsockname()[1]
            yield self.access.address
        finally:
            if listening is not None:
                listening.close()
            self._closing.set()
            await runner.cleanup()
            await self._feeds.close()

    # -- the page ---------------------------------------------------------------------------------------------------
    async def _index(self, request: web.Request) -> web.Response:
        return _file("index.html")

    async def _asset(self, request: web.Request) -> web.Response:
        return _file(request.match_info["name"])

    # -- documents --------------------------------------------------------------------------------------------------
    async def _start(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"version": 1, "where": self._source.where, "job": self._job, "release": outrider.__version__}
        )

    async def _jobs(self, request: web.Request) -> web.StreamResponse:
        return await self._streamed(request, self._feeds.all().messages())

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return await self._streamed(request, self._feeds.of(request.match_info["job"]).messages())

    async def _streamed(self, request: web.Request, messages: AsyncGenerator[Message]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.headers.update(self.access.headers)
        await response.prepare(request)
        closing = asyncio.ensure_future(self._closing.wait())
        following = asyncio.ensure_future(anext(messages))
        try:
            while not closing.done():
                await asyncio.wait({following, closing}, timeout=QUIET, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    await response.write(b":\n\n")
                    continue
                name, text = following.result()
                following = asyncio.ensure_future(anext(messages))
                await response.write(f"event: {name}\ndata: {text}\n\n".encode())
        except (StopAsyncIteration, ConnectionError):
            pass
        finally:
            closing.cancel()
            following.cancel()
            await asyncio.wait({closing, following})
            await messages.aclose()
        return response

    async def _stack(self, request: web.Request) -> web.Response:
        return await self._asked(request, self._source.stack)

    async def _lines(self, request: web.Request) -> web.Response:
        return await self._asked(request, self._source.lines)

    async def _asked(self, request: web.Request, ask: Callable[[str, str], dict[str, Any]]) -> web.Response:
        try:
            found = await asyncio.to_thread(ask, request.match_info["job"], request.match_info["member"])
        except UserError as error:
            found = {"problem": f"{error.message}."}  # such as that the job has ended: not an error of the page
        return web.json_response(page.cleaned(found))

    # -- orders -----------------------------------------------------------------------------------------------------
    async def _order(self, request: web.Request) -> web.Response:
        job, what = request.match_info["job"], request.match_info["what"]
        if what not in ORDERS:
            return refused(404, f"{page.cleaned(what)}: must be one of {', '.join(ORDERS)}.")
        try:
            body = json.loads(await request.read() or b"{}")
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or (what == "scale" and type(body.get("members")) is not int):
            return refused(422, "The body must be a JSON object; for scale it has `members`, a whole number.")
        try:
            sentence = await asyncio.to_thread(self._source.order, job, what, body)
        except UserError as error:
            return refused(409, page.cleaned(f"{error.message}."))
        return web.json_response({"sentence": page.cleaned(sentence)})


class _Refusing(asyncio.Protocol):
    """A connection beyond the most that there may be."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _file(name: str) -> web.Response:
    """A file of the page; the timeline and the colours are the report's."""
    package = "outrider.report" if name in SHARED else __package__
    found = next((each for each in resources.files(package).joinpath("assets").iterdir() if each.name == name), None)
    kind = TYPES.get(name.rpartition(".")[2])
    if found is None or kind is None:
        return refused(404, f"There is no file {page.cleaned(name)}.")
    return web.Response(body=found.read_bytes(), content_type=kind, charset="utf-8")
