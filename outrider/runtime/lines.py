"""Exchanges JSON objects, one per line, over a stream between processes of one machine.

The other side may be any process, so it is not trusted to send complete lines, short lines, text or JSON. A line that
is not a JSON object closes the connection with an error message, and does not affect other connections.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import cast

from outrider.runtime.unix import Peer, peer_of

LONGEST_LINE = 1 << 20


class LineConnection(asyncio.Protocol):
    """One connection. It calls `on_line` for each object, and `on_closed` once, with an error or an empty text."""

    def __init__(
        self,
        on_open: Callable[[LineConnection], None],
        on_line: Callable[[LineConnection, dict[str, object]], None],
        on_closed: Callable[[LineConnection, str], None],
    ) -> None:
        self._on_open = on_open
        self._on_line = on_line
        self._on_closed = on_closed
        self._buffer = bytearray()
        self._searched = 0
        self._transport: asyncio.Transport | None = None
        self._wrong = ""

    @property
    def peer(self) -> Peer:
        assert self._transport is not None
        return peer_of(cast(socket.socket, self._transport.get_extra_info("socket")))

    def send(self, line: dict[str, object]) -> None:
        """Queue one object; ConnectionError if the connection is closed."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("the connection is closed")
        self._transport.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self, wrong: str = "") -> None:
        """Close the connection after queued objects are written; `wrong` is the error if the other side made one."""
        self._wrong = self._wrong or wrong
        if self._transport is not None:
            self._transport.close()

    # -- asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while not self._closing() and (end := self._buffer.find(b"\n", self._searched)) >= 0:
            raw = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._searched = 0
            self._take(raw)
        self._searched = len(self._buffer)
        if len(self._buffer) > LONGEST_LINE:
            self._buffer.clear()
            self.close(f"a line of more than {LONGEST_LINE} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._buffer and not self._wrong:
            self._wrong = "the last line was cut off"
        self._on_closed(self, self._wrong)

    def _closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _take(self, raw: bytes) -> None:
        if len(raw) > LONGEST_LINE:
            self.close(f"a line of more than {LONGEST_LINE} bytes")
            return
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            self.close(f"a line that is not JSON: {raw[:60]!r}")
            return
        if not isinstance(line, dict):
            self.close(f"a line that is not a JSON object: {raw[:60]!r}")
            return
        self._on_line(self, line)
