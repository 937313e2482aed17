"""The DEALER socket to the master: turns received bytes into events."""

from __future__ import annotations

import logging
from collections.abc import Callable

import zmq

from outrider.runtime.dealer import Dealer
from outrider.sidecar.core.events import Event, MasterConnected, MasterDisconnected, MasterSaid
from outrider.wire.codec import BadMessage, decode_from_master, encode
from outrider.wire.messages.directions import FromSidecar

log = logging.getLogger("master")


class MasterLink:
    """Unreadable messages are logged and dropped: a newer master's message must not end an older sidecar."""

    def __init__(self, endpoint: str, master_key: str, put: Callable[[Event], None]) -> None:
        self._put = put
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._dealer = Dealer(
            self._context,
            master_key,
            self._heard,
            lambda: put(MasterConnected()),
            lambda: put(MasterDisconnected()),
        )
        self._dealer.connect(endpoint)

    def send(self, message: FromSidecar) -> None:
        """Sends a message. Raises Unreachable if the link is down."""
        self._dealer.send(encode(message))

    def drain(self) -> int:
        return self._dealer.drain()

    def close(self) -> None:
        """Closes the socket, after up to 0.5 s for the last messages to be sent."""
        self._dealer.close(linger_milliseconds=500)
        self._context.term()

    def _heard(self, payload: bytes) -> None:
        try:
            message = decode_from_master(payload)
        except BadMessage as error:
            log.warning("ignored an unreadable message from the master: %s", error)
            return
        self._put(MasterSaid(message))
