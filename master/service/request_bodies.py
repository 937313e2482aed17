"""The bodies of requests, read so that whoever sends slowly keeps neither memory nor anybody else from an answer."""

from __future__ import annotations

import asyncio

from aiohttp import web

SMALL_BYTES = 64 * 1024
"""What a connection buffers in any case: a body that says it is no larger, as nearly every pod's, needs no room."""
LARGE_AT_ONCE = 16
"""Of up to 8 MiB: a quarter of the memory that a webhook's container has."""
READ_SECONDS = 2.0
"""Half of what the webhook has to decide."""


class Unread(Exception):
    """The body was given up; the message says why."""


class Bodies:
    def __init__(self, seconds: float = READ_SECONDS) -> None:
        self._seconds = seconds
        self._large: dict[asyncio.Timeout, None] = {}
        """The oldest first."""

    async def read(self, http: web.Request) -> bytes:
        """Raises Unread where it takes too long, or ends early."""
        limit = asyncio.timeout(self._seconds)
        is_large = not _is_small(http)
        try:
            async with limit:
                if is_large:
                    self._make_room()
                    self._large[limit] = None
                return await http.read()
        except TimeoutError as error:
            why = f"was not there after {self._seconds:g} s"
            if is_large and limit not in self._large:
                why = f"gave way to a later one: {LARGE_AT_ONCE} large ones are read at once"
            raise Unread(f"the body from {http.remote} {why}") from error
        except ConnectionError as error:
            raise Unread(f"{http.remote} hung up before its body was there") from error
        finally:
            self._large.pop(limit, None)

    def _make_room(self) -> None:
        """Who comes last never waits: the API server sends a body within milliseconds, so the oldest is the slowest."""
        while len(self._large) >= LARGE_AT_ONCE:
            oldest = next(iter(self._large))
            del self._large[oldest]
            if not oldest.expired():
                oldest.reschedule(asyncio.get_running_loop().time())


def _is_small(http: web.Request) -> bool:
    """By what it says of itself, which the parser holds it to; one that is compressed may become anything."""
    is_as_it_says = "Transfer-Encoding" not in http.headers and "Content-Encoding" not in http.headers
    return is_as_it_says and (http.content_length or 0) <= SMALL_BYTES
