"""Probes whether members reach each other, by a datagram and its echo from sidecar to sidecar.

The probes show what the master cannot know from its own link: whether a silent member is gone, or only cut off from the
master. They also show a member whether it is cut off itself. The answer comes from the sidecar's main loop, so a frozen
sidecar does not answer. An answer is as long as its probe, so that it cannot be used for amplification, and carries the
probe's nonce, so that no other process can forge it. A sidecar that ends on order announces that to those that probed
it last, with their nonce, so that its silence raises no alarm.
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
"""Length of a nonce in bytes. The last byte is the number of the attempt, so that a late echo is matched to its own
attempt."""
ATTEMPTS = 3
MOST_REMEMBERED = 64
"""Most remembered addresses that have probed, and that were probed; each has its newest nonce."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Echo:
    """Result of one probe, which is sent up to three times."""

    came: bool
    round_trip: float = 0.0
    """Round-trip time in seconds."""
    lost: int = 0
    """Number of datagrams sent before the answered one; all of them if none was answered."""


class Probes(asyncio.DatagramProtocol):
    """One UDP socket that probes and answers probes."""

    def __init__(self, on_farewell: Callable[[str, int], None]) -> None:
        self._on_farewell = on_farewell
        self._transport: asyncio.DatagramTransport | None = None
        self._waiting: dict[bytes, asyncio.Future[tuple[int, float]]] = {}
        """Futures by nonce; each gets the attempt that was answered, and when."""
        self._probed: dict[Address, bytes] = {}
        self._askers: dict[Address, bytes] = {}

    @classmethod
    async def open(cls, address: str, memory: Path, on_farewell: Callable[[str, int], None]) -> Probes:
        """Opens the socket on the port stored in `memory`, which an earlier sidecar of this member used and where
        others probe it. Otherwise on any free port; on all addresses, if `address` is not one of this machine."""
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
        with contextlib.suppress(OSError):  # the next sidecar then has another port, which its Hello reports
            memory.write_text(str(probes.port))
        return probes

    @property
    def port(self) -> int:
        assert self._transport is not None
        return int(self._transport.get_extra_info("sockname")[1])

    async def reach(self, address: str, port: int, seconds: float) -> Echo:
        """Probes whether a sidecar answers in time; a few attempts, because datagrams get lost."""
        assert self._transport is not None
        nonce = secrets.token_bytes(NONCE - 1)
        answered = self._waiting[nonce] = asyncio.get_running_loop().create_future()
        _remember(self._probed, (address, port), nonce)
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
        kind, nonce, sender = data[: len(QUESTION)], data[len(QUESTION) :], (str(addr[0]), addr[1])
        probe, attempt = nonce[:-1], nonce[-1]
        if kind == QUESTION:
            self._transport.sendto(ANSWER + nonce, addr)
            _remember(self._askers, sender, nonce)
        elif kind == ANSWER and attempt < ATTEMPTS and (waiting := self._waiting.get(probe)) and not waiting.done():
            waiting.set_result((attempt, time.monotonic()))
        elif kind == FAREWELL and self._probed.get(sender) == probe:
            self._on_farewell(*sender)

    def error_received(self, exc: Exception) -> None:
        """Does nothing: a refused datagram is noticed by the missing answer."""


def _remember(memory: dict[Address, bytes], address: Address, nonce: bytes) -> None:
    memory.pop(address, None)
    memory[address] = nonce
    if len(memory) > MOST_REMEMBERED:
        del memory[next(iter(memory))]


def _remembered(memory: Path) -> int:
    """The stored port; 0 if there is none."""
    try:
        port = int(memory.read_text())
    except (OSError, ValueError):
        return 0
    return port if 0 < port < 65536 else 0
