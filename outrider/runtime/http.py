"""Serves an aiohttp application on a unix socket or a port.

The service defines the routes; this module adds the address, the mode of the socket and a bounded time to close. There
is no access log, because status is polled each second.
"""

from __future__ import annotations

import json
from pathlib import Path

from aiohttp import web

from outrider.runtime.unix import listening_socket


class HttpServer:
    """A server for one application: `await start_*`, later `await stop()`."""

    def __init__(self, application: web.Application) -> None:
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)

    async def start_on_socket(self, path: Path, mode: int = 0o600) -> None:
        """Listen on a unix socket; SocketPathTooLong, or OSError with the path, if it cannot be created."""
        await self._runner.setup()
        await web.SockSite(self._runner, listening_socket(path, mode)).start()

    async def start_on_port(self, host: str | None, port: int) -> int:
        """Listen on a port of `host`, or of all addresses if it is None. Returns the port, chosen freely if it is 0."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        await self._runner.cleanup()


def failure(status: int, sentence: str) -> web.Response:
    """An error response in the form of the API: `{"error": sentence}`."""
    return web.json_response({"error": sentence}, status=status, dumps=json.dumps)
