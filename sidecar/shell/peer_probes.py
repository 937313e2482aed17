"""Can members reach each other? A datagram and its echo, from sidecar to sidecar.

It answers what the master cannot know from its own link: whether a silent member is gone, or only cut off from the
master; and to a member itself, whether it is cut off. The answer comes from the same loop that does all the rest, so a
frozen sidecar does not answer. An answer is as long as its question, and carries its nonce: nobody can use it to send
more than they sent, or answer for another. A sidecar that ends as it was told to says so to those that asked it last,
with the nonce of their question: its silence then alarms nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from outrider.runtime.addresses import everywhere

QUESTION = b"outrider?"
ANSWER = b"outrider!"
FAREWELL = b"outrider."
NONCE = 16
"""Bytes; the last one is the number of the attempt, so that an echo that is late is not taken for one of the next."""
ATTEMPTS = 3
MOST_REMEMBERED = 64
"""Askers, and places that were asked, each with the newest nonce."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Echo:
    """What came of one question, which was sent up to three times."""

    came: bool
    round_trip: float = 0.0
    """Seconds."""
    lost: int = 0
    """Datagrams sent before the one that was answered; all of them where none was."""


class Probes(asyncio.DatagramProtocol):
    """One UDP socket that answers and asks."""

    def __init__(self, on_farewell: Callable[[str, int], None]) -> None:
        self._on_farewell = on_farewell
        self._transport: asyncio.DatagramTransport | None = None
        self._waiting: dict[bytes, asyncio.Future[tuple[int, float]]] = {}
        """By nonce: the attempt that was answered, and when."""
        self._asked: dict[Address, bytes] = {}
        self._askers: dict[Address, bytes] = {}

    @classmethod
    async def open(cls, address: str, memory: Path, on_farewell: Callable[[str, int], None]) -> Probes:
        """On the port that `memory` names, where an earlier sidecar of this member had it: that is where others look
        for it. Else on any free one, of all addresses where this is not one of this machine."""
        loop = asyncio.get_running_loop()
        probes = cls(on_farewell)
        places = ((address, _remembered(memory)), (address, 0), (everywhere(address), 0))
        for place in places:
            try:
                await loop.create_datagram_endpoint(lambda: probes, local_addr=place)
                break
            except OSError:
                if place is places[-1]:
                    raise
        with contextlib.suppress(OSError):  # the next sidecar has another port then, which its Hello says
            memory.write_text(str(probes.port))
        return probes

    @property
    def port(self) -> int:
        assert self._transport is not None
        return int(self._transport.get_extra_info("sockname")[1])

    async def reach(self, address: str, port: int, seconds: float) -> Echo:
        """Whether a sidecar answers there in time; asked a few times, because datagrams get lost."""
        assert self._transport is not None
        nonce = secrets.token_bytes(NONCE - 1)
        answered = self._waiting[nonce] = asyncio.get_running_loop().create_future()
        _remember(self._asked, (address, port), nonce)
        sent: list[float] = []
        try:
            for attempt in range(ATTEMPTS):
                sent.append(time.monotonic())  # the loop's own clock counts in milliseconds
                self._transport.sendto(QUESTION + nonce + bytes([attempt]), (address, port))
                done, _pending = await asyncio.wait([answered], timeout=seconds / ATTEMPTS)
                if done:
                    first, at = answered.result()
                    return Echo(True, at - sent[min(first, attempt)], first)
            return Echo(False, 0.0, ATTEMPTS)
        finally:
            del self._waiting[nonce]

    def say_farewell(self) -> None:
        if self._transport is not None:
            for asker, nonce in self._askers.items():
                self._transport.sendto(FAREWELL + nonce, asker)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- asyncio.DatagramProtocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        if len(data) != len(QUESTION) + NONCE or self._transport is None:
            return
        word, nonce, sender = data[: len(QUESTION)], data[len(QUESTION) :], (str(addr[0]), addr[1])
        asked, attempt = nonce[:-1], nonce[-1]
        if word == QUESTION:
            self._transport.sendto(ANSWER + nonce, addr)
            _remember(self._askers, sender, nonce)
        elif word == ANSWER and attempt < ATTEMPTS and (waiting := self._waiting.get(asked)) and not waiting.done():
            waiting.set_result((attempt, time.monotonic()))
        elif word == FAREWELL and self._asked.get(sender) == asked:
            self._on_farewell(*sender)

    def error_received(self, exc: Exception) -> None:
        """A refused datagram is no answer, and is noticed by its absence."""


def _remember(memory: dict[Address, bytes], address: Address, nonce: bytes) -> None:
    memory.pop(address, None)
    memory[address] = nonce
    if len(memory) > MOST_REMEMBERED:
        del memory[next(iter(memory))]


def _remembered(memory: Path) -> int:
    """0 where there is no port to be read."""
    try:
        port = int(memory.read_text())
    except (OSError, ValueError):
        return 0
    return port if 0 < port < 65536 else 0
