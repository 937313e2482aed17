"""Serves an aiohttp application on a unix socket or a port.

A service makes its routes; here they meet an address, with the socket's mode, a bounded time to close, and no access
log (status is polled each second, and what is polled is not news).
"""

from __future__ import annotations

import json
from pathlib import Path

from aiohttp import web

from outrider.runtime.unix import listening_socket


class HttpServer:
    """`await start_*` and then `await stop()`."""

    def __init__(self, application: web.Application) -> None:
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)

    async def start_on_socket(self, path: Path, mode: int = 0o600) -> None:
        """SocketPathTooLong, or OSError naming the path, where it cannot be made."""
        await self._runner.setup()
        await web.SockSite(self._runner, listening_socket(path, mode)).start()

    async def start_on_port(self, host: str | None, port: int) -> int:
        """None: on all addresses. Returns the port, which differs from the one given where that is 0."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        await self._runner.cleanup()


def failure(status: int, sentence: str) -> web.Response:
    """An error as the API gives it: `{"error": sentence}`."""
    return web.json_response({"error": sentence}, status=status, dumps=json.dumps)
