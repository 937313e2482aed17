"""Bodies that come slowly, over real TLS connections to the real webhook."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from typing import Any

import pytest

from outrider.master.service.request_bodies import LARGE_AT_ONCE, SMALL_BYTES
from tests.integration.kubernetes.webhook.test_webhook import CERTIFICATES, NAMES, POD, Asked, review, serving

LARGE = SMALL_BYTES + 1
GOOD = json.dumps(review(POD)).encode()
PATIENT = 600.0
"""Seconds: longer than any test."""


class Slow:
    """A stranger whose body is being read, after 100 Continue."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, body: bytes) -> None:
        self._writer.write(body)

    async def answer(self) -> tuple[int, Any]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length")
        )
        return int(head.split()[1]), json.loads(await self._reader.readexactly(length))

    async def close(self) -> None:
        """Returns when the other side has closed too: a server that stops waits for connections."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def slow(asked: Asked, header: str) -> Slow:
    trusting = ssl.create_default_context(cadata=CERTIFICATES.ca.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", asked.port, ssl=trusting, server_hostname=NAMES[0])
    writer.write(f"POST /mutate-pods HTTP/1.1\r\nHost: us\r\nExpect: 100-continue\r\n{header}\r\n\r\n".encode())
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    return Slow(reader, writer)


async def test_slow_bodies_of_strangers_delay_no_other_request(caplog: pytest.LogCaptureFixture) -> None:
    large_pod = review({**POD, "metadata": {**POD["metadata"], "annotations": {"notes": "x" * LARGE}}})
    async with serving(read_seconds=PATIENT) as asked:
        strangers = [await slow(asked, f"Content-Length: {LARGE}") for _ in range(LARGE_AT_ONCE)]
        assert "patch" in await asked.decide("/mutate-pods", review(POD))
        assert "gave way" not in caplog.text
        assert "patch" in await asked.decide("/mutate-pods", large_pod)
        status, answer = await strangers[0].answer()
        strangers[1].send(GOOD.ljust(LARGE))
        assert (await strangers[1].answer())[0] == 200, "one gave way to one"
        for each in strangers:
            await each.close()
    assert status == 503
    assert answer["error"].startswith("the body from 127.0.0.1 was dropped for a later one: ")
    assert "Error handling request" not in caplog.text, "those who hung up"
    assert " disconnected before its body was complete" in caplog.text
    assert caplog.text.count(f"/mutate-pods: {answer['error']}") == 1


@pytest.mark.parametrize(
    "header",
    ["Transfer-Encoding: chunked", "Content-Encoding: gzip\r\nContent-Length: 100"],
)
async def test_a_body_that_may_become_large_counts_as_one(header: str) -> None:
    async with serving(read_seconds=PATIENT) as asked:
        strangers = [await slow(asked, header) for _ in range(LARGE_AT_ONCE + 1)]
        assert (await strangers[0].answer())[0] == 503
        for each in strangers:
            await each.close()


async def test_small_bodies_never_give_way() -> None:
    async with serving(read_seconds=PATIENT) as asked:
        strangers = [await slow(asked, f"Content-Length: {len(GOOD)}") for _ in range(2 * LARGE_AT_ONCE)]
        for each in strangers:
            each.send(GOOD)
        assert {(await each.answer())[0] for each in strangers} == {200}
        for each in strangers:
            await each.close()


@pytest.mark.parametrize("length", [len(GOOD), LARGE])
async def test_a_body_that_does_not_come_is_given_up(length: int, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(read_seconds=0.05) as asked:
        stranger = await slow(asked, f"Content-Length: {length}")
        status, answer = await stranger.answer()
        await stranger.close()
    assert (status, answer["error"]) == (503, "the body from 127.0.0.1 did not arrive within 0.05 s")
    assert answer["error"] in caplog.text
