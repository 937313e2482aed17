"""A dashboard that listens, and clients of it: a browser's requests without the browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import pytest
from yarl import URL

from outrider.cli.dashboard.server import Server
from outrider.cli.dashboard.sources import Local
from tests.waiting import DEADLINE

Story = Callable[["Visit"], Awaitable[None]]


class Visit:
    """A browser at the dashboard's address."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session, self.address = session, URL(address)
        self.origin = str(self.address.origin())

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(f"{self.origin}{path}", headers=headers, allow_redirects=False) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    async def opened(self) -> Visit:
        """Exchanges the token for the cookie."""
        async with self.session.get(self.address, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
        return self

    async def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        own = {"Origin": self.origin, "X-Outrider": "1"} | headers
        data = body if isinstance(body, bytes) else json.dumps({} if body is None else body)
        async with self.session.post(f"{self.origin}{path}", data=data, headers=own) as answer:
            return answer.status, await answer.json()

    @contextlib.asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        async with self.session.get(f"{self.origin}{path}") as answer:
            assert answer.content_type == "text/event-stream"
            yield _messages(answer)


async def _messages(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def until(messages: AsyncIterator[tuple[str, Any]], name: str,
                is_it: Callable[[Any], bool] = lambda _document: True) -> Any:  # fmt: skip
    """The next message of this name that is the right one."""
    async with asyncio.timeout(DEADLINE):
        async for each, document in messages:
            if each == name and is_it(document):
                return document
    raise AssertionError(f"the stream has ended without {name}")


@contextlib.asynccontextmanager
async def visited(address: str, cookies: Mapping[str, str] | None = None) -> AsyncIterator[Visit]:
    """A visit that has not opened the address yet."""
    jar = aiohttp.CookieJar(unsafe=True)  # cookies of an IP address
    limits = aiohttp.ClientTimeout(total=None, sock_read=DEADLINE)
    async with aiohttp.ClientSession(cookie_jar=jar, cookies=cookies, timeout=limits, read_bufsize=1 << 24) as session:
        yield Visit(session, address)


@pytest.fixture
def visiting() -> Callable[..., None]:
    """Tells a story of a visit to a dashboard of this machine's jobs."""

    def told(story: Story, job: str | None = None, cookies: Mapping[str, str] | None = None) -> None:
        async def tell() -> None:
            async with Server(Local(), job).listening(0) as address, visited(address, cookies) as visit:
                await story(visit)

        asyncio.run(tell())

    return told
