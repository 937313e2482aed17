"""Transfers checkpoints from the memory of one member into that of another, one TCP connection each.

    sender    → 32 random bytes (a nonce)
    receiver  → {"outrider": 1, "rank", "step", "generation", "sharded", "nonce", "mac"}   one line
    sender    → {"head": [...], "mac"}, or {"error": "..."}                     one line
    sender    → the payload, then 8 bytes: `whole...`, or `torn....` if its rank has written to it meanwhile
    sender    → 16 bytes: the payload's seal (copy_seals.py)

Both sides prove that they know the sender's key, which only the master distributes: HMAC-SHA256 over the other side's
nonce and their own message. The payload is as unencrypted as the ranks' gradients, but tamper-proof: the receiver
accepts a checkpoint only if its seal is right, so only data from the sender is ever unpickled. A request has a few
seconds, and occupies no transfer slot before it has proved that it knows the key. The payload moves in pieces of at
most 1 MiB in separate threads, so that it burdens neither the event loop nor the sidecar's memory. Each wait and the
whole transfer have a time-out.
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
"""Seconds without progress of the other side after which a transfer fails."""
QUESTION: Final = 5.0
"""Seconds for a complete request, or a complete answer to one."""
MOST_AT_ONCE: Final = 32
"""Most concurrent transfers; each costs two threads."""
MOST_ASKING: Final = 128
"""Most connections that have not proved yet that they know the key."""
GIVEN_FOR, SLOWEST = 60.0, 25e6
"""Seconds, and bytes a second: a checkpoint that is being sent stays reserved for `GIVEN_FOR` plus its length at
`SLOWEST`, half the speed that a master allows for, so that it is reserved until the master has heard that all have
it."""
VERSION: Final = 1
REQUEST: Final = ("outrider", "rank", "step", "generation", "sharded", "nonce")


class Interrupted(Exception):
    """The transfer failed; the message says why."""


def _mac(key: str, nonce: bytes, message: Any) -> str:
    return hmac.new(key.encode(), nonce + json.dumps(message).encode(), hashlib.sha256).hexdigest()


def _is_right(key: str, nonce: bytes, message: Any, mac: object) -> bool:
    return hmac.compare_digest(_mac(key, nonce, message).encode(), str(mac).encode("utf-8", "surrogatepass"))


def _line(connection: socket.socket) -> dict[str, Any]:
    """Reads exactly one line. Raises Interrupted, also if it does not arrive within QUESTION."""
    found, until = bytearray(), time.monotonic() + QUESTION
    while not found.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or not select.select([connection], [], [], left)[0]:
            raise Interrupted(f"the other side sent no complete line within {QUESTION:g} s")
        byte = connection.recv(1)
        if not byte or len(found) >= LONGEST_LINE:
            raise Interrupted("the other side sent no complete line")
        found += byte
    try:
        message = json.loads(found)
    except ValueError as error:
        raise Interrupted("the other side sent invalid JSON") from error
    if not isinstance(message, dict):
        raise Interrupted("the other side sent JSON that is not an object")
    return message


def _send_line(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


# -- sending ----------------------------------------------------------------------------------------------------------
class Giver:
    """Listens for other members, and sends checkpoints to those that prove that they know the key."""

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
        with connection, suppress(OSError, Interrupted):  # the receiver notices too, and reports it to the master
            connection.settimeout(PATIENCE)
            nonce = secrets.token_bytes(NONCE)
            try:
                request = self._request(connection, nonce)
            finally:
                self._asking.release()
            if request is not None and self._free.acquire(blocking=False):
                try:
                    self._give(connection, nonce, request)
                finally:
                    self._free.release()

    def _request(self, connection: socket.socket, nonce: bytes) -> dict[str, Any] | None:
        """The receiver's request; None if the receiver does not know the key."""
        connection.sendall(nonce)
        line = _line(connection)
        request = {name: line.get(name) for name in REQUEST}
        return request if _is_right(self.key, nonce, request, line.get("mac")) else None

    def _give(self, connection: socket.socket, nonce: bytes, request: dict[str, Any]) -> None:
        try:
            with arena.opened(self._path) as memory:
                self._send(connection, memory, nonce, request)
        except Unusable as error:
            _send_line(connection, {"error": str(error)})

    def _send(self, connection: socket.socket, memory: Arena, nonce: bytes, request: dict[str, Any]) -> None:
        rank, step = request["rank"], request["step"]
        version = step, request["generation"]
        place = memory.find(rank, version, bool(request["sharded"]))
        if place is not None and place.head is not None and place.head.kind == SHARDED:
            give(memory.fd, place.head, GIVEN_FOR + place.head.length / SLOWEST)
            place = memory.find(rank, version, sharded=True)
        if place is None or place.head is None:
            _send_line(connection, {"error": f"the checkpoint of step {step} for rank {rank} is no longer in memory"})
            return
        head = list(place.head)
        _send_line(connection, {"head": head, "mac": _mac(self.key, str(request["nonce"]).encode(), head)})
        seal = Seal(self.key, nonce + str(request["nonce"]).encode(), memory.fd, place.payload)
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


# -- receiving --------------------------------------------------------------------------------------------------------
class Taking:
    """One order to fetch checkpoints. After `stop` nothing more is written."""

    def __init__(self, path: Path, order: Fetch, nproc: int) -> None:
        self._path, self._order, self._nproc = path, order, nproc
        self._began = time.monotonic()
        self._writing = threading.Lock()
        self._stopped = False

    def stop(self) -> None:
        with self._writing:
            self._stopped = True

    def run(self) -> Fetched:
        """Fetches the checkpoints and returns the answer; to be called in a separate thread."""
        order, error = self._order, ""
        try:
            with arena.opened(self._path) as memory:
                for wanted in order.wanted:
                    self._take(memory, wanted)
                if not order.marked and not all(wanted.held for wanted in order.wanted):
                    self._write(lambda: memory.keep(order.step))  # all ranks have it: protected from overwriting
        except (OSError, Unusable, Interrupted) as wrong:
            error = str(wrong) or type(wrong).__name__
        return Fetched(order.order, order.generation, order.step, time.monotonic() - self._began, error)

    def _take(self, memory: Arena, wanted: Wanted) -> None:
        order = self._order
        kind = SHARDED if order.sharded else MARKED if order.marked else REPLICATED
        division = memory.division() if wanted.held else memory.divide(kind, self._nproc)
        if division is None or division.kind != kind:
            raise Unusable("the memory for checkpoints has no slots for such a checkpoint yet")
        if order.marked and memory.find(wanted.rank, self._version(), sharded=False) is not None:
            return  # a master that did not know this has repeated the order
        place = memory.target(division, wanted.local_rank, wanted.held)
        try:
            self._copy(memory, place, division.size - PAGE, wanted)
        except (OSError, Interrupted) as error:
            raise Interrupted(f"from {wanted.member} ({wanted.address}:{wanted.port}): {error}") from error

    def _copy(self, memory: Arena, place: Place, room: int, wanted: Wanted) -> None:
        with socket.create_connection((wanted.address, wanted.port), timeout=self._left()) as connection:
            head, nonces = self._requested(connection, wanted)
            if head.length > room:
                raise Unusable(f"a checkpoint of {head.length} bytes does not fit into a slot of {room} bytes")
            sequence = self._write(lambda: memory.begin(place))
            seal = Seal(wanted.memory_key, nonces, memory.fd, place.payload)
            try:
                self._fill(connection, memory, place, head.length, seal)
            except BaseException:
                seal.close()
                raise
            made = seal.finish()
            if _exactly(connection, len(WHOLE)) != WHOLE:
                raise Interrupted("its rank has started to overwrite the checkpoint")
            if not hmac.compare_digest(made, _exactly(connection, SEAL)):
                raise Interrupted("the seal does not match: the data was changed on the way")
            self._write(lambda: memory.put(place, head._replace(sequence=sequence)))

    def _requested(self, connection: socket.socket, wanted: Wanted) -> tuple[Head, bytes]:
        """Requests the checkpoint; returns the head of the payload that follows, and both nonces."""
        order, own = self._order, secrets.token_hex(NONCE)
        nonce = _exactly(connection, NONCE)
        version = self._version()
        request = dict(zip(REQUEST, (VERSION, wanted.rank, *version, order.sharded, own), strict=True))
        _send_line(connection, {**request, "mac": _mac(wanted.memory_key, nonce, request)})
        answer = _line(connection)
        if "error" in answer:
            raise Interrupted(str(answer["error"])[:200])
        head = answer.get("head")
        if not _is_right(wanted.memory_key, own.encode(), head, answer.get("mac")):
            raise Interrupted("the answer is not authentic: another process answers at this address")
        found = _head(head)
        if (found.step, found.generation) != version or (order.sharded and found.rank != wanted.rank):
            raise Interrupted(f"it offered step {found.step} of rank {found.rank} instead")
        return found, nonce + own.encode()

    def _version(self) -> tuple[int, int]:
        order = self._order
        return order.step, order.made_in.term << 32 | order.made_in.number

    def _fill(self, connection: socket.socket, memory: Arena, place: Place, length: int, seal: Seal) -> None:
        """Splices from the socket through a pipe into the memory, so that no payload enters this process."""
        out, into = os.pipe()
        with open(out, "rb", buffering=0), open(into, "wb", buffering=0):
            with suppress(OSError):  # a smaller pipe works too
                fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIECE)
            at, end = place.payload, place.payload + length
            while at < end:
                count = self._waited(connection, into, min(PIECE, end - at))
                while count:
                    moved = self._write(partial(os.splice, out, memory.fd, count, offset_dst=at))
                    at, count = at + moved, count - moved
                seal.reach(at)

    def _waited(self, connection: socket.socket, into: int, most: int) -> int:
        """Moves up to `most` bytes from the socket into the pipe; returns their number."""
        readable, _, _ = select.select([connection], [], [], self._left())
        if not readable:
            raise Interrupted("the other side has stopped sending")
        count = os.splice(connection.fileno(), into, most)
        if not count:
            raise Interrupted("the connection ended before the checkpoint was complete")
        return count

    def _write(self, do: Any) -> Any:
        with self._writing:
            if self._stopped:
                raise Interrupted("the transfer was cancelled")
            return do()

    def _left(self) -> float:
        """Seconds for the next wait. Raises Interrupted if the whole transfer has timed out."""
        left = self._began + self._order.seconds - time.monotonic()
        if left <= 0:
            raise Interrupted(f"the transfer was not complete within {self._order.seconds:g} s")
        return min(left, PATIENCE)


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = connection.recv(count - len(found))
        if not piece:
            raise Interrupted("the connection ended too early")
        found += piece
    return found


def _head(values: object) -> Head:
    if isinstance(values, list) and len(values) == len(Head._fields) and all(isinstance(v, int) for v in values):
        return Head(*values)
    raise Interrupted("it sent an invalid head of a checkpoint")
