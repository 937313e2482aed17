"""Reads request bodies so that slow senders neither hold memory nor delay other requests."""

from __future__ import annotations

import asyncio

from aiohttp import web

SMALL_BYTES = 64 * 1024
"""Size in bytes that every connection buffers anyway: a body that declares no more, as nearly all pods', is not
limited."""
LARGE_AT_ONCE = 16
"""Most larger bodies (up to 8 MiB) that are read at once: together a quarter of the webhook container's memory."""
READ_SECONDS = 2.0
"""Time-out for a body in seconds, half of the webhook's time for a decision."""


class Unread(Exception):
    """The body could not be read; the message says why."""


class Bodies:
    def __init__(self, seconds: float = READ_SECONDS) -> None:
        self._seconds = seconds
        self._large: dict[asyncio.Timeout, None] = {}
        """Time-outs of the large bodies that are being read, the oldest first."""

    async def read(self, http: web.Request) -> bytes:
        """Reads the body. Raises Unread if it takes too long, or ends early."""
        limit = asyncio.timeout(self._seconds)
        is_large = not _is_small(http)
        try:
            async with limit:
                if is_large:
                    self._make_room()
                    self._large[limit] = None
                return await http.read()
        except TimeoutError as error:
            why = f"did not arrive within {self._seconds:g} s"
            if is_large and limit not in self._large:
                why = f"was dropped for a later one: at most {LARGE_AT_ONCE} large bodies are read at once"
            raise Unread(f"the body from {http.remote} {why}") from error
        except ConnectionError as error:
            raise Unread(f"{http.remote} disconnected before its body was complete") from error
        finally:
            self._large.pop(limit, None)

    def _make_room(self) -> None:
        """Drops the oldest body: the API server sends a body within milliseconds, so the oldest is the slowest."""
        while len(self._large) >= LARGE_AT_ONCE:
            oldest = next(iter(self._large))
            del self._large[oldest]
            if not oldest.expired():
                oldest.reschedule(asyncio.get_running_loop().time())


def _is_small(http: web.Request) -> bool:
    """Whether the declared size is small; the parser enforces it, except for a compressed body, which may grow."""
    is_exact = "Transfer-Encoding" not in http.headers and "Content-Encoding" not in http.headers
    return is_exact and (http.content_length or 0) <= SMALL_BYTES
