"""The sidecar's end of the connection to its master, which reconnects forever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import zmq

from outrider.runtime.curve_keys import new_key_pair
from outrider.runtime.sockets import Readable, Unreachable, common_options

RECONNECT_MILLISECONDS = (100, 2000)
HEARTBEAT_MILLISECONDS = (2000, 4000)
"""How often a sidecar pings the master's process, and how long it waits for the pong. The kernel of a frozen process
keeps acknowledging, so without pings the sidecar would never switch to a standby."""
RETRY_SECONDS = 2.0
"""How long libzmq has to announce its own retry after the end of a connection. It makes none if an answer is not
ZMTP, such as the HTTP error of a proxy that answers for a Service without endpoints; the dealer connects again then."""

log = logging.getLogger("dealer")


class Dealer(Readable):
    """The sidecar's socket: one connection that reconnects forever."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        server_public_key: str,
        on_message: Callable[[bytes], None],
        on_connected: Callable[[], None],
        on_disconnected: Callable[[], None],
    ) -> None:
        socket = context.socket(zmq.DEALER)
        common_options(socket)
        keys = new_key_pair()
        socket.set(zmq.CURVE_PUBLICKEY, keys.public.encode())
        socket.set(zmq.CURVE_SECRETKEY, keys.secret.encode())
        socket.set(zmq.CURVE_SERVERKEY, server_public_key.encode())
        socket.set(zmq.IMMEDIATE, 1)
        socket.set(zmq.RECONNECT_IVL, RECONNECT_MILLISECONDS[0])
        socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MILLISECONDS[1])
        socket.set(zmq.CONNECT_TIMEOUT, 3000)
        socket.set(zmq.HEARTBEAT_IVL, HEARTBEAT_MILLISECONDS[0])
        socket.set(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_MILLISECONDS[1])
        self._on_message = on_message
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._connected = False
        self._endpoint = ""
        self._retry: asyncio.TimerHandle | None = None
        self._is_told = False
        """Whether the log says that something else answered, since the link last came up or broke."""
        super().__init__(socket, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED)

    def connect(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._socket.connect(endpoint)

    def close(self, linger_milliseconds: int = 0) -> None:
        self._cancel_retry()
        super().close(linger_milliseconds)

    def send(self, payload: bytes) -> None:
        """Queue a message; Unreachable if there is no connection, or its queue is full."""
        if not self._connected:
            raise Unreachable("not connected to the master")
        try:
            self._socket.send(payload, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            raise Unreachable(f"the queue to the master is full: {error}") from error
        finally:
            self._look_again()

    def _take_one(self) -> bool:
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        if len(frames) == 1:
            self._on_message(frames[0])
        return True

    def _connection_event(self, event: int, value: int) -> None:
        self._cancel_retry()
        if event == zmq.EVENT_CONNECT_RETRIED:
            return
        if event == zmq.EVENT_DISCONNECTED:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._connect_again)
        connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        if connected == self._connected:
            return
        self._connected, self._is_told = connected, False
        (self._on_connected if connected else self._on_disconnected)()

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _connect_again(self) -> None:
        due = self._retry
        self._drain_monitor()  # a busy loop may not have read libzmq's own retry yet
        if self._closed or self._retry is not due:
            return
        self._retry = None
        if not self._is_told:
            self._is_told = True
            log.warning("what answered at %s was not a master of Outrider; connecting again", self._endpoint)
        self._socket.disconnect(self._endpoint)
        self._socket.connect(self._endpoint)
