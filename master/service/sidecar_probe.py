"""The master's own probe of a sidecar, with the same datagram and echo as between sidecars.

(See `sidecar/shell/peer_probes.py`.) It shows whether a silent member still runs if no peer can probe it. Datagrams may
get lost, so it is sent a few times.
"""

from __future__ import annotations

import asyncio
import secrets

QUESTION = b"outrider?"
ANSWER = b"outrider!"
NONCE_BYTES = 16
ATTEMPTS = 3
SECONDS = 0.4


class _Asking(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        self.answered = asyncio.Event()

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        if data == ANSWER + self.nonce:
            self.answered.set()

    def error_received(self, exc: Exception) -> None:
        """Does nothing: a refused datagram is noticed by the missing answer."""


async def reach(address: str, port: int, seconds: float = SECONDS) -> bool:
    """Whether a sidecar answers within `seconds`; false also for an invalid address."""
    loop = asyncio.get_running_loop()
    try:
        transport, asking = await loop.create_datagram_endpoint(_Asking, remote_addr=(address, port))
    except (OSError, OverflowError, ValueError):
        return False
    try:
        for _ in range(ATTEMPTS):
            transport.sendto(QUESTION + asking.nonce)
            try:
                async with asyncio.timeout(seconds / ATTEMPTS):
                    await asking.answered.wait()
                return True
            except TimeoutError:
                continue
        return False
    finally:
        transport.close()
