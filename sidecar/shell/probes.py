"""Can members reach each other? A datagram and its echo, from sidecar to sidecar.

It answers what the master cannot know from its own link: whether a silent member is gone, or only cut off from the
master. The answer comes from the same loop that does all the rest, so a frozen sidecar does not answer. An answer is as
long as its question, and carries its nonce: nobody can use it to send more than they sent, or answer for another.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import cast

QUESTION = b"outrider?"
ANSWER = b"outrider!"
NONCE = 16
ATTEMPTS = 3


class Probes(asyncio.DatagramProtocol):
    """One UDP socket that answers and asks."""

    def __init__(self) -> None:
        self._transport: asyncio.DatagramTransport | None = None
        self._waiting: dict[bytes, asyncio.Future[None]] = {}

    @classmethod
    async def open(cls, address: str) -> Probes:
        """On any free port of this address, or of all where it is not an address of this machine."""
        loop = asyncio.get_running_loop()
        probes = cls()
        try:
            await loop.create_datagram_endpoint(lambda: probes, local_addr=(address, 0))
        except OSError:
            await loop.create_datagram_endpoint(lambda: probes, local_addr=("0.0.0.0", 0))
        return probes

    @property
    def port(self) -> int:
        assert self._transport is not None
        return int(self._transport.get_extra_info("sockname")[1])

    async def reach(self, address: str, port: int, seconds: float) -> bool:
        """Whether a sidecar answers there in time; asked a few times, because datagrams get lost."""
        assert self._transport is not None
        nonce = secrets.token_bytes(NONCE)
        answered = self._waiting[nonce] = asyncio.get_running_loop().create_future()
        try:
            for _ in range(ATTEMPTS):
                self._transport.sendto(QUESTION + nonce, (address, port))
                done, _pending = await asyncio.wait([answered], timeout=seconds / ATTEMPTS)
                if done:
                    return True
            return False
        finally:
            del self._waiting[nonce]

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- asyncio.DatagramProtocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        if len(data) != len(QUESTION) + NONCE or self._transport is None:
            return
        word, nonce = data[: len(QUESTION)], data[len(QUESTION) :]
        if word == QUESTION:
            self._transport.sendto(ANSWER + nonce, addr)
        elif word == ANSWER and (waiting := self._waiting.get(nonce)) and not waiting.done():
            waiting.set_result(None)

    def error_received(self, exc: Exception) -> None:
        """A refused datagram is no answer, and is noticed by its absence."""
