"""The master's end of its sidecars' connections: each is a session, and who is nobody for long is hung up."""

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
"""That the kernel keeps of a connection; by itself it would keep megabytes, and they count as the container's."""
MOST_STRANGERS = 2000
"""Connections that are nobody's yet (28 KiB each, with CURVE); beyond that the oldest of them is hung up."""
SILENT = 30.0
"""Seconds after which one is hung up over which nothing has come: who has something to say says it within 3."""
ENDED = 10_000
"""So many connections are remembered after their end, for what they had still to say."""


@dataclass(slots=True)
class _Session:
    name: str
    route: bytes
    descriptor: int
    address: str
    allowance: RateLimit | None = None
    """None: it may say whatever it likes."""
    forgotten: bool = False
    is_cut: bool = False
    """It has said too much: its connection is about to end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What connections may say."""

    stranger: Callable[[], RateLimit]
    """Of one that is nobody's yet."""
    can_be_missed: Callable[[bytes], bool]
    """Of a message that begins so."""
    on_cut: Callable[[str], None]
    """This session has said too much, and is hung up."""


class Router(Readable):
    """The master's end. A session is one connection, named by a number that is never used again in this process."""

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
        """Descriptors of connections that were accepted and have not ended."""
        self._counter = 0
        self._port = 0
        self._strangers: dict[int, float] = {}
        """Descriptors of connections that are nobody's yet, and since when: the oldest first."""
        self._looks: asyncio.TimerHandle | None = None
        super().__init__(socket, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)

    def bind(self, endpoint: str) -> str:
        """Binds (port `*`: any free one) and returns the endpoint as it became."""
        self._socket.bind(endpoint)
        bound = self._socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        self._port = int(bound.rstrip(b"\0").rpartition(b":")[2])
        return bound.rstrip(b"\0").decode()

    def admit(self, session: str, allowance: RateLimit | None = None) -> None:
        """It is somebody's: it may be silent, gives way to nobody, and may say as much as that one may."""
        if (known := self._by_name.get(session)) is not None:
            self._strangers.pop(known.descriptor, None)
            known.allowance = allowance

    def close(self, linger_milliseconds: int = 0) -> None:
        if self._looks is not None:
            self._looks.cancel()
        super().close(linger_milliseconds)

    def send(self, session: str, payload: bytes) -> None:
        """Queues a message; Unreachable where the session's connection is gone or takes no more."""
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
        """The other end's address without its port; empty where the session is closed."""
        known = self._by_name.get(session)
        return known.address if known is not None else ""

    def forget(self, session: str) -> None:
        """Closes a session: what still comes over its connection is thrown away, nothing more is sent to it, and its
        end is not told. The connection itself stays known until it ends, or its peer would come back as a new
        session."""
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
        if len(frames) == 2 and not session.forgotten and not session.is_cut and self._may_say(session, frames[1]):
            self._on_message(session.name, frames[1].bytes)
        return True

    def _may_say(self, session: _Session, frame: zmq.Frame) -> bool:
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
        """None where the connection has ended before anything of it was read: nobody would ever tell its end."""
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
        self._strangers.pop(value, None)
        if event == zmq.EVENT_ACCEPTED:
            self._open.add(value)
            self._strangers[value] = self._loop.time()
            if len(self._strangers) > MOST_STRANGERS:
                self._hang_up(next(iter(self._strangers)))
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
            self._looks = self._loop.call_later(SILENT / 3, self._look_at_strangers)

    def _look_at_strangers(self) -> None:
        self._looks = None
        self._drain_monitor()  # who has gone meanwhile has given its descriptor back
        before = self._loop.time() - SILENT
        for descriptor, since in list(self._strangers.items()):
            if since <= before and descriptor not in self._by_descriptor:
                self._hang_up(descriptor)
        if self._strangers:
            self._look_later()

    def _hang_up(self, descriptor: int) -> None:
        """libzmq has no word for it. It finds the connection's end, and tells it; the descriptor stays its own."""
        self._strangers.pop(descriptor, None)
        with contextlib.suppress(OSError), sockets.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family in (sockets.AF_INET, sockets.AF_INET6) and connection.getsockname()[1] == self._port:
                connection.shutdown(sockets.SHUT_RDWR)
