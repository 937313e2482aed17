"""The memory in which checkpoints lie: one file, `checkpoints`, in the member's volume, which outlives its processes.

Page 0 says how the file is divided; each slot is a page of head and then a payload. Whoever writes a slot makes its
sequence odd first, and the head is written anew when all of it is there; a copy counts once its checksum is in the head
(`sealed`). The head has a checksum of its own, so what is torn, damaged, foreign or of a newer layout is no copy.

The worker processes map the file; the sidecar only reads and writes it in pieces. All pages are there from the start
(`allot`), so no write into the mapping can fail. Layout: docs/contracts.md.
"""

from __future__ import annotations

import collections
import fcntl
import os
import struct
import time
import zlib
from collections.abc import Iterable, Sequence

NAME = "checkpoints"
PAGE = 4096
VERSION = 1
UNDECIDED, REPLICATED, SHARDED, MARKED = range(4)
FIRST = struct.Struct("<4sIQIIQ")
"""Magic, layout version, kept, kind, slots, slot size."""
KEPT = struct.Struct("<Q")
KEPT_AT = 8
SEQUENCE_AT = 8
GIVEN = struct.Struct("<QQQQ")
GIVEN_AT = 32
LONGEST_GIVEN = 3600.0
"""Seconds. A later end was written before the node began anew: its clock begins at zero."""
HEAD = struct.Struct("<4sIQqQIIIIQII")
SUM = struct.Struct("<I")
SLOTS = {REPLICATED: 2, SHARDED: 4, MARKED: 2}
"""Of a member that has replicated states, or saves of the marked path (`step` is their number); of each local rank of
one that has sharded ones: own, own, held, held."""

Head = collections.namedtuple("Head", "version sequence step generation rank world kind sealed length crc32 quick")
"""Of a copy. `generation` is term << 32 | number; `crc32` is that of the payload, `quick` the one a rank checks when it
loads (`checkpoints.state_codec.quick_sum`)."""
Division = collections.namedtuple("Division", "kind slots size")
"""How the file is divided: `size` is that of a slot, head and payload."""


class Unusable(Exception):
    """A sentence: what is wrong with the memory as a whole."""


def path_of(volume: str) -> str:
    return os.path.join(volume, NAME)


# -- the whole ---------------------------------------------------------------------------------------------------------
def is_allotted(path: str, size: int) -> bool:
    """The file is there, with all the pages that so many bytes have."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_size == _whole_pages(size) and found.st_blocks * 512 >= found.st_size


def _whole_pages(size: int) -> int:
    return size - size % PAGE


def allot(path: str, size: int) -> None:
    """Makes the file with all its pages, in place of one of another size. Raises OSError."""
    if is_allotted(path, size):
        return
    beside = path + ".new"
    fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _whole_pages(size))
        os.fchmod(fd, 0o666)  # the sidecar of a pod is another user, and writes into it too
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    finally:
        os.close(fd)


def division(fd: int) -> Division | None:
    """None where nothing is stored yet. Raises `Unusable`."""
    data = os.pread(fd, FIRST.size, 0)
    if len(data) < FIRST.size:
        raise Unusable("the memory for checkpoints has %d bytes" % len(data))
    magic, version, _, kind, slots, size = FIRST.unpack(data)
    if magic == bytes(4):
        return None
    if magic != b"ORCA":
        raise Unusable("the memory for checkpoints holds something else")
    if version > VERSION:
        raise Unusable("the memory for checkpoints has layout %d, and only %d is known here" % (version, VERSION))
    found = Division(kind, slots, size)
    if kind not in SLOTS or not slots or size % PAGE or size <= PAGE or PAGE + slots * size > os.fstat(fd).st_size:
        raise Unusable("the memory for checkpoints is divided in a way that cannot be: %r" % (found,))
    return found


def planned(size: int, kind: int, local_world: int) -> Division:
    """How a file of so many bytes is divided."""
    slots = SLOTS[kind] * (local_world if kind == SHARDED else 1)
    each = (size - PAGE) // slots
    return Division(kind, slots, each - each % PAGE)


def divide(fd: int, kind: int, local_world: int) -> Division:
    """The division for states of this kind; where there is another one, or none that can be used, all is cleared."""
    wanted = planned(os.fstat(fd).st_size, kind, local_world)
    if wanted.size <= PAGE:
        raise Unusable("the memory for checkpoints is too small: %d bytes" % os.fstat(fd).st_size)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    try:
        if _division_or_none(fd) != wanted:
            os.pwrite(fd, bytes(PAGE), 0)
            for slot in range(wanted.slots):
                os.pwrite(fd, bytes(PAGE), place(wanted, slot))
            os.pwrite(fd, FIRST.pack(b"ORCA", VERSION, 0, *wanted), 0)
    finally:
        fcntl.lockf(fd, fcntl.LOCK_UN)
    return wanted


def _division_or_none(fd: int) -> Division | None:
    try:
        return division(fd)
    except Unusable:
        return None


def kept(fd: int) -> int | None:
    """The newest step that every rank has, None where there is none."""
    (found,) = KEPT.unpack(os.pread(fd, KEPT.size, KEPT_AT))
    return found - 1 if found else None


def keep(fd: int, step: int) -> None:
    os.pwrite(fd, KEPT.pack(step + 1), KEPT_AT)


# -- slots -------------------------------------------------------------------------------------------------------------
def own(kind: int, local_rank: int) -> tuple[int, int]:
    """The slots that a local rank writes to."""
    return (0, 1) if kind != SHARDED else (4 * local_rank, 4 * local_rank + 1)


def held(local_rank: int) -> tuple[int, int]:
    """The slots for copies of a partner's rank."""
    return (4 * local_rank + 2, 4 * local_rank + 3)


def place(divided: Division, slot: int) -> int:
    """Where a slot's head begins; its payload is a page behind it."""
    return PAGE + slot * divided.size


def room(divided: Division) -> int:
    """Bytes of a payload."""
    return divided.size - PAGE


def head(fd: int, divided: Division, slot: int) -> Head | None:
    """The head of a copy that is whole, sealed or not; None where there is none."""
    data = os.pread(fd, HEAD.size + SUM.size, place(divided, slot))
    if len(data) < HEAD.size + SUM.size or data[:4] != b"ORCS" or SUM.unpack_from(data, HEAD.size)[0] != _sum(data):
        return None
    found = Head(*HEAD.unpack_from(data)[1:])
    is_none = found.sequence & 1 or found.version > VERSION or found.length > room(divided)
    return None if is_none else found


def begin(fd: int, divided: Division, slot: int) -> int:
    """From now on nothing in this slot counts, until it has a head again. Returns the sequence of that head."""
    where = place(divided, slot) + SEQUENCE_AT
    (sequence,) = KEPT.unpack(os.pread(fd, KEPT.size, where))
    sequence = (sequence | 1) % (1 << 63)
    os.pwrite(fd, KEPT.pack(sequence), where)
    return sequence + 1


def put(fd: int, divided: Division, slot: int, found: Head) -> None:
    """Writes the head: all that it says is in the slot."""
    data = HEAD.pack(b"ORCS", *found)
    os.pwrite(fd, data + SUM.pack(_sum(data)), place(divided, slot))


def _sum(data: bytes) -> int:
    return zlib.crc32(data[: HEAD.size])


def copies(fd: int, divided: Division, slots: Iterable[int]) -> list[tuple[int, Head]]:
    """(slot, head) of the sealed copies in these slots, the newest first."""
    found = [(slot, head(fd, divided, slot)) for slot in slots]
    sealed = [(slot, each) for slot, each in found if each is not None and each.sealed]
    return sorted(sealed, key=lambda pair: (pair[1].step, pair[1].generation), reverse=True)


def give(fd: int, head: Head, seconds: float) -> None:
    """A partner takes this copy over: its rank does not write over it before it is kept, or the time is over. Said by
    the sidecar before it looks whether the copy is there: the rank looks again behind its first mark."""
    (kept,) = KEPT.unpack(os.pread(fd, KEPT.size, KEPT_AT))
    until = int((time.monotonic() + seconds) * 1000)
    os.pwrite(fd, GIVEN.pack(head.step + 1, head.generation, kept, until), GIVEN_AT)


def is_given(fd: int, head: Head | None) -> bool:
    """This copy is being taken over by a partner, which counts only if its owner has it too: it waits for `kept` to
    reach it, or for the end that the sidecar has set."""
    step, generation, before, until = GIVEN.unpack(os.pread(fd, GIVEN.size, GIVEN_AT).ljust(GIVEN.size, b"\0"))
    if head is None or not step or (head.step + 1, head.generation) != (step, generation):
        return False
    (now_kept,) = KEPT.unpack(os.pread(fd, KEPT.size, KEPT_AT))
    left = until / 1000 - time.monotonic()
    return (now_kept == before or now_kept < step) and 0 < left < LONGEST_GIVEN


def claim(
    fd: int, divided: Division, slots: Sequence[int], generation: int, pinned: Iterable[int] = ()
) -> tuple[int, int] | None:
    """(slot, sequence of its next head) of the place that a save of this generation may take; from now on nothing in it
    counts. None where none is free. A copy that this generation made and a partner takes over now is not written over:
    the sidecar notes that it gives it before it looks whether it is there, so one of both sees the other."""
    pinned = list(pinned)
    while (slot := next_slot(fd, divided, slots, pinned)) is not None:
        before = head(fd, divided, slot)
        of_now = before if before is not None and before.generation == generation else None
        if not is_given(fd, of_now):
            sequence = begin(fd, divided, slot)
            if not is_given(fd, of_now):
                return slot, sequence
            os.pwrite(fd, KEPT.pack(before.sequence), place(divided, slot) + SEQUENCE_AT)
        pinned.append(slot)
    return None


def next_slot(fd: int, divided: Division, slots: Sequence[int], pinned: Iterable[int] = ()) -> int | None:
    """The one that a save may take: never the copy that every rank has, or else the newest; None where none is free."""
    sealed, step = copies(fd, divided, slots), kept(fd)
    ages = {slot: (each.generation, each.step) for slot, each in sealed}
    every_rank_has = [slot for slot, each in sealed if each.step == step]
    safe = max(every_rank_has or ages, key=ages.get, default=None)
    free = [slot for slot in slots if slot != safe and slot not in pinned]
    return min(free, key=lambda slot: ages.get(slot, (-1, 0)), default=None)
