"""The seal of a transferred checkpoint proves that the bytes are those in the sender's memory.

It is Poly1305 under a one-time key: HMAC-SHA256 of the sender's key over both sides' nonces. That costs a quarter of
SHA-256, so that it keeps up with the network. A separate thread reads the bytes as they arrive, in pieces of 128 KiB,
so that sealing and transfer run in parallel.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from typing import Final

PIECE: Final = 1 << 17
LENGTH: Final = 16
"""Length of a seal in bytes."""


class Seal:
    """The seal over a file's bytes from `start` up to the last `reach`."""

    def __init__(self, key: str, nonces: bytes, fd: int, start: int) -> None:
        # imported late: it takes 7 MB, and most members have no memory for checkpoints
        from cryptography.hazmat.primitives.poly1305 import Poly1305

        self._sum = Poly1305(hmac.new(key.encode(), b"payload" + nonces, hashlib.sha256).digest())
        self._fd, self._at, self._end, self._is_whole = fd, start, start, False
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def reach(self, end: int) -> None:
        with self._moved:
            self._end = end
            self._moved.notify()

    def finish(self) -> bytes:
        """Waits until all bytes have been read, and returns the seal. Call either this or `close`, once."""
        self.close()
        return self._sum.finalize()

    def close(self) -> None:
        """Returns when the thread has stopped reading the file."""
        with self._moved:
            self._is_whole = True
            self._moved.notify()
        self._thread.join()

    def _follow(self) -> None:
        buffer = bytearray(PIECE)
        while (count := self._awaited()) > 0:
            read = os.preadv(self._fd, [memoryview(buffer)[:count]], self._at)
            if not read:
                return  # the file has become shorter: the seal will not match
            self._sum.update(memoryview(buffer)[:read])
            self._at += read

    def _awaited(self) -> int:
        """Number of bytes that can be read now, at most `PIECE`; 0 if no more will come."""
        with self._moved:
            self._moved.wait_for(lambda: self._end > self._at or self._is_whole)
            return min(PIECE, self._end - self._at)
