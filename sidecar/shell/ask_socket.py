"""Serves ask.sock, at which programs in the sidecar's container make the same queries as the master.

Users who may execute commands there may query (docs/contracts.md §3): the socket is for the sidecar's own user alone.
Each connection makes one query; several may be open at once. If the client has gone, its answer is dropped.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path

from outrider.runtime.unix import listening_socket
from outrider.sidecar.ask import QUESTIONS, error
from outrider.sidecar.core.events import AskedHere, Event
from outrider.sidecar.shell.hooks_link import COLLECT_SECONDS

SECONDS = COLLECT_SECONDS + 1


class Askers:
    """`put` receives the queries; `answer` sends the result back."""

    def __init__(self, folder: Path, put: Callable[[Event], None]) -> None:
        self._path = folder / "ask.sock"
        self._put = put
        self._numbers = itertools.count(int(time.monotonic() * 1000))
        """Order numbers, not from 1: so a late answer to an earlier sidecar's query matches none of ours."""
        self._waiting: dict[int, asyncio.Future[str]] = {}
        self._server: asyncio.AbstractServer | None = None

    async def listen(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, sock=listening_socket(self._path))

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def answer(self, order: int, body: str) -> None:
        waiting = self._waiting.get(order)
        if waiting is not None and not waiting.done():
            waiting.set_result(body)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                what = (await reader.readline()).decode().strip()
                writer.write((await self._query(what)).encode())
                await writer.drain()
        except (TimeoutError, ConnectionError, ValueError):
            pass  # the client reports that no answer came
        finally:
            writer.close()

    async def _query(self, what: str) -> str:
        if what not in QUESTIONS:
            supported = ", ".join(f'"{each}"' for each in QUESTIONS)
            return error(f'Unsupported value: "{what[:40]}": supported values: {supported}')
        order = -next(self._numbers)
        waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[order] = waiting
        try:
            self._put(AskedHere(order, what))
            return await waiting
        finally:
            del self._waiting[order]
