"""The memory in which a member keeps checkpoints, as its sidecar sees it: the file `checkpoints` in its volume.

`training_hooks/abi/arena.py` has the same layout (docs/contracts.md §11), and a test holds the two together: neither
side may import the other. The ranks map the file and pay for its pages; the sidecar maps nothing of it, reads and
writes in pieces, and only into pages that are there. Own slots are written to while no rank runs here, held ones by
nobody else.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from outrider.wire.ids import Generation
from outrider.wire.messages import Copy

PAGE: Final = 4096
VERSION: Final = 1
REPLICATED, SHARDED, MARKED = 1, 2, 3
FIRST: Final = struct.Struct("<4sIQIIQ")
HEAD: Final = struct.Struct("<4sIQqQIIIIQII")
WORD: Final = struct.Struct("<Q")
SUM: Final = struct.Struct("<I")
KEPT_AT, SEQUENCE_AT = 8, 8
GIVEN: Final = struct.Struct("<QQQQ")
GIVEN_AT: Final = 32
SLOTS: Final = {REPLICATED: 2, SHARDED: 4, MARKED: 2}


class NoMemory(Exception):
    """A sentence: what is wrong with the memory, or does not fit into it."""


class Head(NamedTuple):
    version: int
    sequence: int
    step: int
    generation: int
    """term << 32 | number."""
    rank: int
    world: int
    kind: int
    sealed: int
    length: int
    crc32: int
    quick: int


class Division(NamedTuple):
    kind: int
    slots: int
    size: int
    """Of a slot: a page of head, then the payload."""


@dataclass(frozen=True, slots=True)
class Place:
    """A slot, where its head begins, and the copy that is whole in it."""

    slot: int
    at: int
    head: Head | None

    @property
    def payload(self) -> int:
        return self.at + PAGE


class Arena:
    """Opened for one use: the file may be a new one the next time."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    # -- the whole
    def division(self) -> Division | None:
        """None where nothing is stored yet. Raises NoMemory."""
        data = os.pread(self.fd, FIRST.size, 0)
        if len(data) < FIRST.size:
            raise NoMemory(f"the memory for checkpoints has {len(data)} bytes")
        magic, version, _kept, kind, slots, size = FIRST.unpack(data)
        if magic == bytes(4):
            return None
        if magic != b"ORCA" or version > VERSION:
            raise NoMemory("the memory for checkpoints holds something else, or has a newer layout")
        is_whole = kind in SLOTS and slots and size % PAGE == 0 and size > PAGE
        if not is_whole or PAGE + slots * size > os.fstat(self.fd).st_size:
            raise NoMemory("the memory for checkpoints is divided in a way that cannot be")
        return Division(kind, slots, size)

    def divide(self, kind: int, nproc: int) -> Division:
        """As the ranks would do it; where it is divided otherwise, all in it is cleared. Only while no rank runs."""
        slots = SLOTS[kind] * (nproc if kind == SHARDED else 1)
        each = (os.fstat(self.fd).st_size - PAGE) // slots
        wanted = Division(kind, slots, each - each % PAGE)
        if wanted.size <= PAGE:
            raise NoMemory("the memory for checkpoints is too small")
        fcntl.lockf(self.fd, fcntl.LOCK_EX)
        try:
            if self._division_or_none() != wanted:
                os.pwrite(self.fd, bytes(PAGE), 0)
                for slot in range(slots):
                    os.pwrite(self.fd, bytes(PAGE), PAGE + slot * wanted.size)
                os.pwrite(self.fd, FIRST.pack(b"ORCA", VERSION, 0, *wanted), 0)
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)
        return wanted

    def _division_or_none(self) -> Division | None:
        with suppress(NoMemory):
            return self.division()
        return None

    def keep(self, step: int) -> None:
        """Every rank has this step: its copies here are not overwritten before there is a newer one."""
        if self.division() is not None:
            os.pwrite(self.fd, WORD.pack(step + 1), KEPT_AT)

    def give(self, head: Head, seconds: float) -> None:
        """A partner takes this copy over: its rank does not write over it before Kept is said of it, or the time is
        over. Said before looking whether it is there: the rank looks again behind its first mark."""
        (kept,) = WORD.unpack(os.pread(self.fd, WORD.size, KEPT_AT))
        until = int((time.monotonic() + seconds) * 1000)
        os.pwrite(self.fd, GIVEN.pack(head.step + 1, head.generation, kept, until), GIVEN_AT)

    # -- slots
    def places(self, division: Division) -> Iterator[Place]:
        for slot in range(division.slots):
            at = PAGE + slot * division.size
            yield Place(slot, at, self._head(at, division))

    def _head(self, at: int, division: Division) -> Head | None:
        """Of a copy that is whole and sealed."""
        data = os.pread(self.fd, HEAD.size + SUM.size, at)
        if len(data) < HEAD.size + SUM.size or data[:4] != b"ORCS" or SUM.unpack_from(data, HEAD.size)[0] != _sum(data):
            return None
        head = Head(*HEAD.unpack_from(data)[1:])
        counts = head.sealed and not head.sequence & 1 and head.version <= VERSION
        return head if counts and head.length <= division.size - PAGE else None

    def find(self, rank: int, version: tuple[int, int], sharded: bool) -> Place | None:
        """A copy of this step and generation that is good for this rank; any is where all ranks have the same state."""
        division = self.division()
        for place in self.places(division) if division is not None else ():
            head = place.head
            if head is None or (head.step, head.generation) != version or (head.kind == SHARDED) != sharded:
                continue
            if not sharded or head.rank == rank:
                return place
        return None

    def is_still(self, place: Place, division: Division) -> bool:
        """Nobody has written to it since it was found."""
        return place.head is not None and self._head(place.at, division) == place.head

    def target(self, division: Division, local_rank: int, held: bool) -> Place:
        """The slot that a copy from another member may take: never the one with what is kept, or else the newest."""
        first = 0 if division.kind != SHARDED else 4 * local_rank + (2 if held else 0)
        mine = [place for place in self.places(division) if first <= place.slot < first + 2]
        if not mine:
            raise NoMemory(f"there are no slots for local rank {local_rank}")
        (kept,) = WORD.unpack(os.pread(self.fd, WORD.size, KEPT_AT))
        safe = max((place for place in mine if place.head is not None and place.head.step + 1 == kept),
                   key=_age, default=None)  # fmt: skip
        free = [place for place in mine if place is not safe]
        return min(free, key=_age)

    def begin(self, place: Place) -> int:
        """From now on nothing in this slot counts, until it has a head again; the sequence of that head."""
        (sequence,) = WORD.unpack(os.pread(self.fd, WORD.size, place.at + SEQUENCE_AT))
        odd = (sequence | 1) % (1 << 63)
        os.pwrite(self.fd, WORD.pack(odd), place.at + SEQUENCE_AT)
        return int(odd) + 1

    def put(self, place: Place, head: Head) -> None:
        data = HEAD.pack(b"ORCS", *head)
        os.pwrite(self.fd, data + SUM.pack(_sum(data)), place.at)


def _age(place: Place) -> tuple[int, int]:
    """A later generation's is the newer one, as for the ranks."""
    return (place.head.generation, place.head.step) if place.head is not None else (-1, 0)


def _sum(data: bytes) -> int:
    return zlib.crc32(data[: HEAD.size])


@contextmanager
def opened(path: Path) -> Iterator[Arena]:
    """Raises NoMemory where there is none."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise NoMemory("no memory for checkpoints was declared here (checkpointMemory)") from error
    try:
        yield Arena(fd)
    finally:
        os.close(fd)


def copies(path: Path) -> tuple[Copy, ...]:
    """The checkpoints that are whole in it; none where there is no memory, or it cannot be read."""
    with suppress(NoMemory, OSError), opened(path) as arena:
        division = arena.division()
        if division is not None:
            return tuple(_copy(place.slot, place.head) for place in arena.places(division) if place.head is not None)
    return ()


def _copy(slot: int, head: Head) -> Copy:
    generation = Generation(head.generation >> 32, head.generation & 0xFFFFFFFF)
    is_held = head.kind == SHARDED and slot % SLOTS[SHARDED] >= 2
    is_sharded, is_marked = head.kind == SHARDED, head.kind == MARKED
    return Copy(head.rank, head.step, is_sharded, head.world, generation, head.length, is_held, is_marked)
