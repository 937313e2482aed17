"""The sidecar's end of the connection to its master, which reconnects forever."""

from __future__ import annotations

from collections.abc import Callable

import zmq

from outrider.runtime.curve_keys import new_key_pair
from outrider.runtime.sockets import Readable, Unreachable, common_options

RECONNECT_MILLISECONDS = (100, 2000)
HEARTBEAT_MILLISECONDS = (2000, 4000)
"""How often a sidecar pings the master's process, and how long it waits for the pong. The kernel of a frozen process
keeps acknowledging, so without pings the sidecar would never switch to a standby."""


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
        super().__init__(socket, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)

    def connect(self, endpoint: str) -> None:
        self._socket.connect(endpoint)

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
        connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        if connected == self._connected:
            return
        self._connected = connected
        (self._on_connected if connected else self._on_disconnected)()
