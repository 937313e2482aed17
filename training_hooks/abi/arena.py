"""The checkpoint memory: one file, `checkpoints`, in the member's volume, which outlives its processes.

Page 0 describes how the file is divided; each slot is a page with its head, then a payload. A writer first makes the
slot's sequence odd, and writes the head again when the payload is complete. A copy is valid once its checksum is in the
head (`sealed`). The head has its own checksum, so a torn, damaged or foreign slot, or one of a newer layout, is not a
copy.

Worker processes map the file; the sidecar reads and writes it in pieces. All pages are allocated at the start
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
"""Layout of page 0: magic, layout version, kept, kind, slots, slot size."""
KEPT = struct.Struct("<Q")
KEPT_AT = 8
SEQUENCE_AT = 8
GIVEN = struct.Struct("<QQQQ")
GIVEN_AT = 32
LONGEST_GIVEN = 3600.0
"""Most seconds for which a transfer is believed. A later end was written before the node rebooted, since the clock
starts at zero."""
HEAD = struct.Struct("<4sIQqQIIIIQII")
SUM = struct.Struct("<I")
SLOTS = {REPLICATED: 2, SHARDED: 4, MARKED: 2}
"""Slots of a member for states that are equal on all ranks, and for saves of the checkpoint path (their `step` is the
number of the save). For sharded states: slots of each local rank, two for its own copies and two for a partner's."""

Head = collections.namedtuple("Head", "version sequence step generation rank world kind sealed length crc32 quick")
"""Head of a copy. `generation` is term << 32 | number. `crc32` is that of the payload; `quick` is the checksum that a
rank verifies when it loads (`checkpoints.state_codec.quick_sum`)."""
Division = collections.namedtuple("Division", "kind slots size")
"""How the file is divided. `size`: the bytes of a slot, head and payload."""


class Unusable(Exception):
    """The checkpoint memory as a whole cannot be used; the message has the reason."""


def path_of(volume: str) -> str:
    return os.path.join(volume, NAME)


# -- the whole ---------------------------------------------------------------------------------------------------------
def is_allotted(path: str, size: int) -> bool:
    """Whether the file has all pages for `size` bytes."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_size == _whole_pages(size) and found.st_blocks * 512 >= found.st_size


def _whole_pages(size: int) -> int:
    return size - size % PAGE


def allot(path: str, size: int) -> None:
    """Creates the file with all its pages, replacing one of another size. Raises OSError."""
    if is_allotted(path, size):
        return
    beside = path + ".new"
    fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _whole_pages(size))
        os.fchmod(fd, 0o666)  # the sidecar of a pod is another user, and writes to it too
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    finally:
        os.close(fd)


def division(fd: int) -> Division | None:
    """The division of the file, or None if nothing is stored yet. Raises `Unusable`."""
    data = os.pread(fd, FIRST.size, 0)
    if len(data) < FIRST.size:
        raise Unusable("the checkpoint memory has only %d bytes" % len(data))
    magic, version, _, kind, slots, size = FIRST.unpack(data)
    if magic == bytes(4):
        return None
    if magic != b"ORCA":
        raise Unusable("the checkpoint memory contains something else")
    if version > VERSION:
        raise Unusable("the checkpoint memory has layout %d; only layout %d is supported" % (version, VERSION))
    found = Division(kind, slots, size)
    if kind not in SLOTS or not slots or size % PAGE or size <= PAGE or PAGE + slots * size > os.fstat(fd).st_size:
        raise Unusable("the checkpoint memory has an impossible division: %r" % (found,))
    return found


def planned(size: int, kind: int, local_world: int) -> Division:
    """The division of a file of `size` bytes."""
    slots = SLOTS[kind] * (local_world if kind == SHARDED else 1)
    each = (size - PAGE) // slots
    return Division(kind, slots, each - each % PAGE)


def divide(fd: int, kind: int, local_world: int) -> Division:
    """The division for states of this kind. If the file has another one, or an unusable one, everything is cleared."""
    target = planned(os.fstat(fd).st_size, kind, local_world)
    if target.size <= PAGE:
        raise Unusable("the checkpoint memory is too small: %d bytes" % os.fstat(fd).st_size)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    try:
        if _division_or_none(fd) != target:
            os.pwrite(fd, bytes(PAGE), 0)
            for slot in range(target.slots):
                os.pwrite(fd, bytes(PAGE), place(target, slot))
            os.pwrite(fd, FIRST.pack(b"ORCA", VERSION, 0, *target), 0)
    finally:
        fcntl.lockf(fd, fcntl.LOCK_UN)
    return target


def _division_or_none(fd: int) -> Division | None:
    try:
        return division(fd)
    except Unusable:
        return None


def kept(fd: int) -> int | None:
    """The newest step that every rank has in memory, or None."""
    (found,) = KEPT.unpack(os.pread(fd, KEPT.size, KEPT_AT))
    return found - 1 if found else None


def keep(fd: int, step: int) -> None:
    os.pwrite(fd, KEPT.pack(step + 1), KEPT_AT)


# -- slots -------------------------------------------------------------------------------------------------------------
def own(kind: int, local_rank: int) -> tuple[int, int]:
    """The slots that a local rank writes to."""
    return (0, 1) if kind != SHARDED else (4 * local_rank, 4 * local_rank + 1)


def held(local_rank: int) -> tuple[int, int]:
    """The slots for replicas of a partner's rank."""
    return (4 * local_rank + 2, 4 * local_rank + 3)


def place(divided: Division, slot: int) -> int:
    """The offset of a slot's head; the payload is one page after it."""
    return PAGE + slot * divided.size


def room(divided: Division) -> int:
    """The bytes available for a payload."""
    return divided.size - PAGE


def head(fd: int, divided: Division, slot: int) -> Head | None:
    """The head of a complete copy, sealed or not; None if there is none."""
    data = os.pread(fd, HEAD.size + SUM.size, place(divided, slot))
    if len(data) < HEAD.size + SUM.size or data[:4] != b"ORCS" or SUM.unpack_from(data, HEAD.size)[0] != _sum(data):
        return None
    found = Head(*HEAD.unpack_from(data)[1:])
    is_none = found.sequence & 1 or found.version > VERSION or found.length > room(divided)
    return None if is_none else found


def begin(fd: int, divided: Division, slot: int) -> int:
    """Invalidates a slot until it has a head again; returns the sequence for that head."""
    where = place(divided, slot) + SEQUENCE_AT
    (sequence,) = KEPT.unpack(os.pread(fd, KEPT.size, where))
    sequence = (sequence | 1) % (1 << 63)
    os.pwrite(fd, KEPT.pack(sequence), where)
    return sequence + 1


def put(fd: int, divided: Division, slot: int, found: Head) -> None:
    """Writes the head: from now on the slot has the copy that it describes."""
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
    """Records that a partner receives this copy: its rank does not overwrite it until it is kept or the time is over.
    The sidecar calls it before it checks whether the copy exists; the rank checks again after it has invalidated the
    slot."""
    (kept,) = KEPT.unpack(os.pread(fd, KEPT.size, KEPT_AT))
    until = int((time.monotonic() + seconds) * 1000)
    os.pwrite(fd, GIVEN.pack(head.step + 1, head.generation, kept, until), GIVEN_AT)


def is_given(fd: int, head: Head | None) -> bool:
    """Whether a partner is receiving this copy. The replica is useful only if its owner has the copy too, so the rank
    waits until `kept` reaches it, or until the time that the sidecar has set."""
    step, generation, before, until = GIVEN.unpack(os.pread(fd, GIVEN.size, GIVEN_AT).ljust(GIVEN.size, b"\0"))
    if head is None or not step or (head.step + 1, head.generation) != (step, generation):
        return False
    (now_kept,) = KEPT.unpack(os.pread(fd, KEPT.size, KEPT_AT))
    left = until / 1000 - time.monotonic()
    return (now_kept == before or now_kept < step) and 0 < left < LONGEST_GIVEN


def claim(
    fd: int, divided: Division, slots: Sequence[int], generation: int, pinned: Iterable[int] = ()
) -> tuple[int, int] | None:
    """(slot, sequence of its next head) that a save of this generation may write to; the slot is invalid from now on.
    None if no slot is free. A copy of this generation that a partner is receiving is not overwritten: the sidecar
    records the transfer before it checks whether the copy exists, so one of the two sees the other."""
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
    """The slot for the next save, or None if none is free; never the copy that every rank has, nor else the newest
    one."""
    sealed, step = copies(fd, divided, slots), kept(fd)
    ages = {slot: (each.generation, each.step) for slot, each in sealed}
    every_rank_has = [slot for slot, each in sealed if each.step == step]
    safe = max(every_rank_has or ages, key=ages.get, default=None)
    free = [slot for slot in slots if slot != safe and slot not in pinned]
    return min(free, key=lambda slot: ages.get(slot, (-1, 0)), default=None)
