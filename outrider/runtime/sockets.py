"""ZeroMQ sockets between a master and its sidecars: ROUTER and DEALER under CURVE.

Pitfalls, and what is done about them here (measured with libzmq 4.3.5):

* A routing id that a client chooses can be refused silently, or take over another client. So none is set: the
  connection is the session, and the service must find out who the peer is.
* A send to a peer that is gone does not fail unless ROUTER_MANDATORY is set.
* A message's SRCFD and the monitor's DISCONNECTED carry the same descriptor, which maps a broken TCP connection to its
  session within 10 ms. Descriptors are reused, so the monitor is drained before a new session is bound to one.
* The last messages of a connection may be read after its end. They are dropped: otherwise they would be a new session
  that never ends.
* If a connection's queue of unread messages is full and its other end goes away, a PING that was already read aborts
  the process (`Assertion failed: !_io_error`). So the queue has no limit, and a peer that sends too much is
  disconnected.
* The FD of a socket is edge triggered: it is read until it is empty, and checked again after each send.
* A queue for a disconnected peer would keep outdated orders. ZMQ_IMMEDIATE drops them instead, and the cores repeat
  those that still count after the reconnect.
"""

from __future__ import annotations

import asyncio
import time

import zmq
from zmq.utils.monitor import parse_monitor_message

LARGEST_MESSAGE = (1 << 20) + 1024
"""The most bytes of a frame; a longer one closes its connection before it is read into memory. Messages have a lower
limit (`outrider.wire.codec`), and CURVE adds some bytes."""
BATCH, LONGEST_DRAIN = 1000, 0.02
"""The most messages, and the most seconds, before other work of the loop gets its turn."""


class Unreachable(Exception):
    """The peer's connection is gone, or its queue is full."""


class Readable:
    """A socket that is read on the event loop, with its monitor, until both are empty."""

    def __init__(self, socket: zmq.Socket[bytes], events: int) -> None:
        self._socket = socket
        self._monitor = socket.get_monitor_socket(events)
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._closed = False
        for readable in (self._monitor, socket):
            self._loop.add_reader(_descriptor(readable), self._ready)

    def drain(self) -> int:
        """Handle what has arrived, at most a batch; returns the number of messages and connection events."""
        self._scheduled = False
        if self._closed:
            return 0
        taken, until = self._drain_monitor(), time.monotonic() + LONGEST_DRAIN
        while taken < BATCH and time.monotonic() < until and self._take_one():
            taken += 1
        if taken:
            self._look_again()  # for the rest, and for what has arrived meanwhile
        return taken

    def close(self, linger_milliseconds: int = 0) -> None:
        if self._closed:
            return
        self._closed = True
        for readable in (self._monitor, self._socket):
            self._loop.remove_reader(_descriptor(readable))
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_milliseconds)

    def _ready(self) -> None:
        self.drain()

    def _look_again(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._ready)

    def _drain_monitor(self) -> int:
        taken = 0
        while not self._closed:
            try:
                frames = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            event = parse_monitor_message(frames)
            self._connection_event(event["event"], event["value"])
            taken += 1
        return taken

    def _take_one(self) -> bool:
        raise NotImplementedError

    def _connection_event(self, event: int, value: int) -> None:
        raise NotImplementedError


def _descriptor(socket: zmq.Socket[bytes]) -> int:
    descriptor = socket.getsockopt(zmq.FD)
    assert isinstance(descriptor, int)
    return descriptor


def common_options(socket: zmq.Socket[bytes]) -> None:
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.IPV6, 1)  # IPv4 too: `*` binds both, and a name may have either
    socket.set(zmq.MAXMSGSIZE, LARGEST_MESSAGE)
    socket.set(zmq.HANDSHAKE_IVL, 5000)
    socket.set(zmq.TCP_KEEPALIVE, 1)
    socket.set(zmq.TCP_KEEPALIVE_IDLE, 10)
    socket.set(zmq.TCP_KEEPALIVE_INTVL, 5)
    socket.set(zmq.TCP_KEEPALIVE_CNT, 3)
    socket.set(zmq.TCP_MAXRT, 15_000)
