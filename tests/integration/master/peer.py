"""A raw peer of a master: a DEALER that says what it is told to, be it nonsense."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import zmq

from outrider.runtime.curve_keys import KeyPair
from outrider.wire.codec import decode_from_master
from outrider.wire.messages.directions import FromMaster
from tests.waiting import until


class Peer:
    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, server: KeyPair, address: str = ""
    ) -> None:
        public, secret = zmq.curve_keypair()
        self._socket = context.socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.CURVE_PUBLICKEY, public)
        self._socket.set(zmq.CURVE_SECRETKEY, secret)
        self._socket.set(zmq.CURVE_SERVERKEY, server.public.encode())
        self._socket.connect(endpoint.replace("tcp://", f"tcp://{address}:0;") if address else endpoint)

    def say(self, data: bytes) -> None:
        self._socket.send(data)

    def say_if_it_can(self, data: bytes) -> None:
        with suppress(zmq.Again):
            self._socket.send(data, zmq.NOBLOCK)

    async def hear(self) -> FromMaster:
        """The master's next message."""
        await until(lambda: self._socket.poll(0))
        return decode_from_master(self._socket.recv())

    def close(self) -> None:
        self._socket.close()


@contextmanager
def peers(endpoint: str, server: KeyPair, count: int, address: str = "") -> Iterator[list[Peer]]:
    """`address`: the one that they speak from."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made = [Peer(context, endpoint, server, address) for _ in range(count)]
    try:
        yield made
    finally:
        for peer in made:
            peer.close()
        context.term()
