"""Copies of checkpoints from the memory of one member into that of another: one TCP connection a copy.

    giver  → 32 bytes, once
    taker  → {"outrider": 1, "rank", "step", "generation", "sharded", "nonce", "mac"}   one line
    giver  → {"head": [...], "mac"}, or {"error": "..."}                     one line
    giver  → the payload, then 8 bytes: `whole...`, or `torn....` where its rank has written to it meanwhile
    giver  → 16 bytes: the payload's seal (copy_seals.py)

Both prove that they know the giver's key, which the master alone hands out: HMAC-SHA256 over the other's nonce and what
they say. The payload is as open as the ranks' gradients are, but nobody can change it: the taker counts a copy as one
only when its seal is right, so nothing is ever unpickled that did not come from the giver. A question has a few seconds
for all of it, and takes no place of those that are given something before it has proved that it knows the key. The
payload moves in pieces of at most 1 MiB, in threads of their own, so that neither the loop nor the sidecar's memory
notices; each wait has an end, and so has the whole.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import select
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from outrider.runtime.addresses import listening
from outrider.sidecar.shell import arena
from outrider.sidecar.shell.arena import Arena, Place
from outrider.sidecar.shell.copy_seals import LENGTH as SEAL
from outrider.sidecar.shell.copy_seals import Seal
from outrider.wire.messages.checkpoints import Fetch, Fetched, Wanted
from training_hooks.abi.arena import MARKED, PAGE, REPLICATED, SHARDED, Head, Unusable, give

PIECE: Final = 1 << 20
NONCE: Final = 32
LONGEST_LINE: Final = 4096
WHOLE, TORN = b"whole...", b"torn...."
PATIENCE: Final = 10.0
"""Seconds in which the other side must go on."""
QUESTION: Final = 5.0
"""Seconds for a whole question, or a whole answer to one."""
MOST_AT_ONCE: Final = 32
"""Members that are given something; each costs two threads."""
MOST_ASKING: Final = 128
"""Connections that have not proved yet that they know the key."""
GIVEN_FOR, SLOWEST = 60.0, 25e6
"""Seconds, and bytes a second: half of what a master allows, so a copy is held until it has said that all are there."""
VERSION: Final = 1
ASKED: Final = ("outrider", "rank", "step", "generation", "sharded", "nonce")


class Interrupted(Exception):
    """A sentence: why a copy was not taken over."""


def _mac(key: str, nonce: bytes, said: Any) -> str:
    return hmac.new(key.encode(), nonce + json.dumps(said).encode(), hashlib.sha256).hexdigest()


def _is_right(key: str, nonce: bytes, said: Any, mac: object) -> bool:
    return hmac.compare_digest(_mac(key, nonce, said).encode(), str(mac).encode("utf-8", "surrogatepass"))


def _line(connection: socket.socket) -> dict[str, Any]:
    """One line; no byte behind it is read. Raises Interrupted, also where it is not there within QUESTION."""
    found, until = bytearray(), time.monotonic() + QUESTION
    while not found.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or not select.select([connection], [], [], left)[0]:
            raise Interrupted(f"the other side said no whole line within {QUESTION:g} s")
        byte = connection.recv(1)
        if not byte or len(found) >= LONGEST_LINE:
            raise Interrupted("the other side said no whole line")
        found += byte
    try:
        said = json.loads(found)
    except ValueError as error:
        raise Interrupted("the other side said what is no JSON") from error
    if not isinstance(said, dict):
        raise Interrupted("the other side said what is no object")
    return said


def _say(connection: socket.socket, said: dict[str, Any]) -> None:
    connection.sendall(json.dumps(said).encode() + b"\n")


# -- giving -----------------------------------------------------------------------------------------------------------
class Giver:
    """Listens for other members, and gives them what they prove to be sent for."""

    def __init__(self, address: str, path: Path) -> None:
        self._path = path
        self.key = secrets.token_hex(32)
        self._listener = _listener(address)
        self._free = threading.Semaphore(MOST_AT_ONCE)
        self._asking = threading.Semaphore(MOST_ASKING)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._listener.fileno(), self._come)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()

    def _come(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if not self._asking.acquire(blocking=False):
            connection.close()
            return
        threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, Interrupted):  # who asked has noticed, and says so to the master
            connection.settimeout(PATIENCE)
            nonce = secrets.token_bytes(NONCE)
            try:
                said = self._asked(connection, nonce)
            finally:
                self._asking.release()
            if said is not None and self._free.acquire(blocking=False):
                try:
                    self._give(connection, nonce, said)
                finally:
                    self._free.release()

    def _asked(self, connection: socket.socket, nonce: bytes) -> dict[str, Any] | None:
        """None where who asks does not know the key."""
        connection.sendall(nonce)
        asked = _line(connection)
        said = {name: asked.get(name) for name in ASKED}
        return said if _is_right(self.key, nonce, said, asked.get("mac")) else None

    def _give(self, connection: socket.socket, nonce: bytes, said: dict[str, Any]) -> None:
        try:
            with arena.opened(self._path) as memory:
                self._send(connection, memory, nonce, said)
        except Unusable as error:
            _say(connection, {"error": str(error)})

    def _send(self, connection: socket.socket, memory: Arena, nonce: bytes, said: dict[str, Any]) -> None:
        rank, step = said["rank"], said["step"]
        version = step, said["generation"]
        place = memory.find(rank, version, bool(said["sharded"]))
        if place is not None and place.head is not None and place.head.kind == SHARDED:
            give(memory.fd, place.head, GIVEN_FOR + place.head.length / SLOWEST)
            place = memory.find(rank, version, sharded=True)
        if place is None or place.head is None:
            _say(connection, {"error": f"there is no whole copy of step {step} for rank {rank} any more"})
            return
        head = list(place.head)
        _say(connection, {"head": head, "mac": _mac(self.key, str(said["nonce"]).encode(), head)})
        seal = Seal(self.key, nonce + str(said["nonce"]).encode(), memory.fd, place.payload)
        try:
            seal.reach(place.payload + place.head.length)
            with open(memory.fd, "rb", buffering=0, closefd=False) as file:
                connection.sendfile(file, place.payload, place.head.length)
        except BaseException:
            seal.close()
            raise
        made = seal.finish()
        connection.sendall((WHOLE if memory.is_still(place) else TORN) + made)


def _listener(address: str) -> socket.socket:
    found = listening(address)
    found.setblocking(False)
    return found


# -- taking -----------------------------------------------------------------------------------------------------------
class Taking:
    """One order to take copies over. After `stop` nothing more is written."""

    def __init__(self, path: Path, order: Fetch, nproc: int) -> None:
        self._path, self._order, self._nproc = path, order, nproc
        self._began = time.monotonic()
        self._writing = threading.Lock()
        self._stopped = False

    def stop(self) -> None:
        with self._writing:
            self._stopped = True

    def run(self) -> Fetched:
        """In a thread of its own."""
        order, error = self._order, ""
        try:
            with arena.opened(self._path) as memory:
                for wanted in order.wanted:
                    self._take(memory, wanted)
                if not order.marked and not all(wanted.held for wanted in order.wanted):
                    self._write(lambda: memory.keep(order.step))  # the others have it: it is not written over
        except (OSError, Unusable, Interrupted) as wrong:
            error = str(wrong) or type(wrong).__name__
        return Fetched(order.order, order.generation, order.step, time.monotonic() - self._began, error)

    def _take(self, memory: Arena, wanted: Wanted) -> None:
        order = self._order
        kind = SHARDED if order.sharded else MARKED if order.marked else REPLICATED
        division = memory.division() if wanted.held else memory.divide(kind, self._nproc)
        if division is None or division.kind != kind:
            raise Unusable("the memory for checkpoints is not divided for such copies yet")
        if order.marked and memory.find(wanted.rank, self._version(), sharded=False) is not None:
            return  # a master that does not know has asked again
        place = memory.target(division, wanted.local_rank, wanted.held)
        try:
            self._copy(memory, place, division.size - PAGE, wanted)
        except (OSError, Interrupted) as error:
            raise Interrupted(f"from {wanted.member} ({wanted.address}:{wanted.port}): {error}") from error

    def _copy(self, memory: Arena, place: Place, room: int, wanted: Wanted) -> None:
        with socket.create_connection((wanted.address, wanted.port), timeout=self._left()) as connection:
            head, nonces = self._asked(connection, wanted)
            if head.length > room:
                raise Unusable(f"a copy of {head.length} bytes does not fit into {room}")
            sequence = self._write(lambda: memory.begin(place))
            seal = Seal(wanted.memory_key, nonces, memory.fd, place.payload)
            try:
                self._fill(connection, memory, place, head.length, seal)
            except BaseException:
                seal.close()
                raise
            made = seal.finish()
            if _exactly(connection, len(WHOLE)) != WHOLE:
                raise Interrupted("its rank has begun to write another checkpoint in its place")
            if not hmac.compare_digest(made, _exactly(connection, SEAL)):
                raise Interrupted("what came is not what the member has: somebody has changed it on the way")
            self._write(lambda: memory.put(place, head._replace(sequence=sequence)))

    def _asked(self, connection: socket.socket, wanted: Wanted) -> tuple[Head, bytes]:
        """The head of what comes, and both nonces."""
        order, own = self._order, secrets.token_hex(NONCE)
        nonce = _exactly(connection, NONCE)
        version = self._version()
        said = dict(zip(ASKED, (VERSION, wanted.rank, *version, order.sharded, own), strict=True))
        _say(connection, {**said, "mac": _mac(wanted.memory_key, nonce, said)})
        answer = _line(connection)
        if "error" in answer:
            raise Interrupted(str(answer["error"])[:200])
        head = answer.get("head")
        if not _is_right(wanted.memory_key, own.encode(), head, answer.get("mac")):
            raise Interrupted("who answers there is not the member that it should be")
        found = _head(head)
        if (found.step, found.generation) != version or (order.sharded and found.rank != wanted.rank):
            raise Interrupted(f"it gave step {found.step} of rank {found.rank}")
        return found, nonce + own.encode()

    def _version(self) -> tuple[int, int]:
        order = self._order
        return order.step, order.made_in.term << 32 | order.made_in.number

    def _fill(self, connection: socket.socket, memory: Arena, place: Place, length: int, seal: Seal) -> None:
        """From the socket into a pipe and from there into the memory: none of it enters this process."""
        out, into = os.pipe()
        with open(out, "rb", buffering=0), open(into, "wb", buffering=0):
            with suppress(OSError):  # a smaller one will do
                fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIECE)
            at, end = place.payload, place.payload + length
            while at < end:
                count = self._waited(connection, into, min(PIECE, end - at))
                while count:
                    moved = self._write(partial(os.splice, out, memory.fd, count, offset_dst=at))
                    at, count = at + moved, count - moved
                seal.reach(at)

    def _waited(self, connection: socket.socket, into: int, most: int) -> int:
        """The bytes that are in the pipe now."""
        readable, _, _ = select.select([connection], [], [], self._left())
        if not readable:
            raise Interrupted("the other side does not go on")
        count = os.splice(connection.fileno(), into, most)
        if not count:
            raise Interrupted("the connection has ended before the copy was there")
        return count

    def _write(self, do: Any) -> Any:
        with self._writing:
            if self._stopped:
                raise Interrupted("it was not waited for any more")
            return do()

    def _left(self) -> float:
        """Seconds for the next wait."""
        left = self._began + self._order.seconds - time.monotonic()
        if left <= 0:
            raise Interrupted(f"it was not there within {self._order.seconds:g} s")
        return min(left, PATIENCE)


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = connection.recv(count - len(found))
        if not piece:
            raise Interrupted("the connection has ended too early")
        found += piece
    return found


def _head(values: object) -> Head:
    if isinstance(values, list) and len(values) == len(Head._fields) and all(isinstance(v, int) for v in values):
        return Head(*values)
    raise Interrupted("it gave no head of a checkpoint")
