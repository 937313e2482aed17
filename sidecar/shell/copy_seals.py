"""The seal of a copy. It says that the bytes are those which the giver has in its memory, whoever sits on the network
between.

Poly1305 under a key that is used once: HMAC-SHA256 of the giver's key over both sides' nonces. It costs a quarter of
what SHA-256 does, and a copy has to keep up with the network. A thread of its own follows the bytes as they come, in
pieces of 128 KiB, so that sealing and moving go on side by side.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from typing import Final

PIECE: Final = 1 << 17
LENGTH: Final = 16
"""Bytes of a seal."""


class Seal:
    """Over what stands in a file from `start` on, as far as `reach` was told that it is there."""

    def __init__(self, key: str, nonces: bytes, fd: int, start: int) -> None:
        # late: it takes 7 MB, and most members have no memory for checkpoints
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
        """Waits until all of it is read. Call it, or `close`, once."""
        self.close()
        return self._sum.finalize()

    def close(self) -> None:
        """Returns when the file is not read any more."""
        with self._moved:
            self._is_whole = True
            self._moved.notify()
        self._thread.join()

    def _follow(self) -> None:
        buffer = bytearray(PIECE)
        while (count := self._awaited()) > 0:
            read = os.preadv(self._fd, [memoryview(buffer)[:count]], self._at)
            if not read:
                return  # the file has become shorter: the seal will not fit
            self._sum.update(memoryview(buffer)[:read])
            self._at += read

    def _awaited(self) -> int:
        """Bytes that are there and were not read; 0 where no more will come."""
        with self._moved:
            self._moved.wait_for(lambda: self._end > self._at or self._is_whole)
            return min(PIECE, self._end - self._at)
