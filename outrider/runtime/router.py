"""The master's end of its sidecars' connections. Each connection is a session; idle unknown peers are disconnected."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket as sockets
from collections.abc import Callable
from dataclasses import dataclass

import zmq

from outrider.runtime.curve_keys import KeyPair
from outrider.runtime.rate_limit import RateLimit, Verdict
from outrider.runtime.sockets import Readable, Unreachable, common_options

UNREAD_BYTES = 128 << 10
"""The kernel's buffer for a connection in bytes. The default is megabytes, which count as the container's memory."""
MOST_UNKNOWN = 2000
"""The most connections of peers that are not admitted yet (28 KiB each, with CURVE); beyond it the oldest is closed."""
SILENT = 30.0
"""Seconds without a message after which the connection of an unknown peer is closed; a sidecar sends within 3."""
ENDED = 10_000
"""The number of ended connections that are remembered, because their last messages may still be read."""


@dataclass(slots=True)
class _Session:
    name: str
    route: bytes
    descriptor: int
    address: str
    allowance: RateLimit | None = None
    """The limit of messages; None: no limit."""
    forgotten: bool = False
    is_cut: bool = False
    """Whether the peer has sent too much, so that its connection is about to end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of messages on connections."""

    stranger: Callable[[], RateLimit]
    """Makes the limit of a connection that is not admitted yet."""
    can_be_missed: Callable[[bytes], bool]
    """Whether a message that begins with these bytes may be skipped."""
    on_cut: Callable[[str], None]
    """Called with a session that has sent too much and is disconnected."""


class Router(Readable):
    """The master's socket. A session is one connection; its name is a number that this process never reuses."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        keys: KeyPair,
        on_message: Callable[[str, bytes], None],
        on_disconnect: Callable[[str], None],
        limits: Limits | None = None,
    ) -> None:
        socket = context.socket(zmq.ROUTER)
        common_options(socket)
        socket.set(zmq.RCVHWM, 0)
        socket.set(zmq.RCVBUF, UNREAD_BYTES)
        socket.set(zmq.CURVE_PUBLICKEY, keys.public.encode())
        socket.set(zmq.CURVE_SECRETKEY, keys.secret.encode())
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.ROUTER_MANDATORY, 1)
        socket.set(zmq.BACKLOG, 4096)
        self._on_message = on_message
        self._on_disconnect = on_disconnect
        self._limits = limits
        self._by_name: dict[str, _Session] = {}
        self._by_route: dict[bytes, _Session] = {}
        self._by_descriptor: dict[int, _Session] = {}
        self._ended: dict[bytes, None] = {}
        self._open: set[int] = set()
        """The descriptors of open connections."""
        self._counter = 0
        self._port = 0
        self._unknown: dict[int, float] = {}
        """The descriptors of connections that are not admitted yet, with their time of accept, oldest first."""
        self._looks: asyncio.TimerHandle | None = None
        super().__init__(socket, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)

    def bind(self, endpoint: str) -> str:
        """Bind to an endpoint (port `*`: any free one); returns the actual endpoint."""
        self._socket.bind(endpoint)
        bound = self._socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        self._port = int(bound.rstrip(b"\0").rpartition(b":")[2])
        return bound.rstrip(b"\0").decode()

    def admit(self, session: str, allowance: RateLimit | None = None) -> None:
        """Admit a session, whose peer is known now: it may be silent, is not closed to make room, and gets this
        allowance."""
        if (known := self._by_name.get(session)) is not None:
            self._unknown.pop(known.descriptor, None)
            known.allowance = allowance

    def close(self, linger_milliseconds: int = 0) -> None:
        if self._looks is not None:
            self._looks.cancel()
        super().close(linger_milliseconds)

    def send(self, session: str, payload: bytes) -> None:
        """Queue a message; Unreachable if the session's connection is gone or its queue is full."""
        known = self._by_name.get(session)
        if known is None or known.forgotten:
            raise Unreachable(f"session {session} is closed")
        try:
            self._socket.send_multipart([known.route, payload], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            raise Unreachable(f"session {session}: {error}") from error
        finally:
            self._look_again()

    def address_of(self, session: str) -> str:
        """The peer's address without its port; empty if the session is closed."""
        known = self._by_name.get(session)
        return known.address if known is not None else ""

    def forget(self, session: str) -> None:
        """Close a session: further messages from it are dropped, nothing more is sent to it, and its end is not
        reported. The connection stays known until it ends, or its peer would come back as a new session."""
        known = self._by_name.get(session)
        if known is not None:
            known.forgotten = True

    def _take_one(self) -> bool:
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        route = frames[0].bytes
        session = self._by_route.get(route)
        if session is None:
            self._drain_monitor()  # the end of the descriptor's former owner must not hit the new one
            if route in self._ended:
                return True
            session = self._new_session(route, frames[-1])
            if session is None:
                return True
        if len(frames) == 2 and not session.forgotten and not session.is_cut and self._is_allowed(session, frames[1]):
            self._on_message(session.name, frames[1].bytes)
        return True

    def _is_allowed(self, session: _Session, frame: zmq.Frame) -> bool:
        if session.allowance is None or self._limits is None:
            return True
        can_be_missed = self._limits.can_be_missed
        verdict = session.allowance.spend(
            len(frame), self._loop.time(), lambda: can_be_missed(bytes(frame.buffer[:64]))
        )
        if verdict is Verdict.HANG_UP:
            session.is_cut = True
            self._limits.on_cut(session.name)
            self._hang_up(session.descriptor)
        return verdict is Verdict.TAKE

    def _new_session(self, route: bytes, frame: zmq.Frame) -> _Session | None:
        """The session of a new connection; None if the connection ended before its first message was read, because no
        event would ever report its end."""
        descriptor = frame.get(zmq.SRCFD)
        assert isinstance(descriptor, int)
        if descriptor not in self._open:
            self._note_ended(route)
            return None
        self._counter += 1
        allowance = self._limits.stranger() if self._limits is not None else None
        session = _Session(str(self._counter), route, descriptor, str(frame.get("Peer-Address")), allowance)
        self._by_name[session.name] = self._by_route[route] = self._by_descriptor[descriptor] = session
        return session

    def _connection_event(self, event: int, value: int) -> None:
        self._unknown.pop(value, None)
        if event == zmq.EVENT_ACCEPTED:
            self._open.add(value)
            self._unknown[value] = self._loop.time()
            if len(self._unknown) > MOST_UNKNOWN:
                self._hang_up(next(iter(self._unknown)))
            self._look_later()
            return
        self._open.discard(value)
        session = self._by_descriptor.pop(value, None)
        if session is None:
            return
        del self._by_name[session.name], self._by_route[session.route]
        self._note_ended(session.route)
        if not session.forgotten:
            self._on_disconnect(session.name)

    def _note_ended(self, route: bytes) -> None:
        self._ended[route] = None
        if len(self._ended) > ENDED:
            del self._ended[next(iter(self._ended))]

    def _look_later(self) -> None:
        if self._looks is None:
            self._looks = self._loop.call_later(SILENT / 3, self._close_idle)

    def _close_idle(self) -> None:
        self._looks = None
        self._drain_monitor()  # who has gone meanwhile has given its descriptor back
        before = self._loop.time() - SILENT
        for descriptor, since in list(self._unknown.items()):
            if since <= before and descriptor not in self._by_descriptor:
                self._hang_up(descriptor)
        if self._unknown:
            self._look_later()

    def _hang_up(self, descriptor: int) -> None:
        """libzmq has no word for it. It finds the connection's end, and tells it; the descriptor stays its own."""
        self._unknown.pop(descriptor, None)
        with contextlib.suppress(OSError), sockets.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family in (sockets.AF_INET, sockets.AF_INET6) and connection.getsockname()[1] == self._port:
                connection.shutdown(sockets.SHUT_RDWR)
