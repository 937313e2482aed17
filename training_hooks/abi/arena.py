"""The memory in which checkpoints lie: one file, `checkpoints`, in the member's volume, which outlives its processes.

Page 0 says how the file is divided; each slot is a page of head and then a payload. Whoever writes a slot makes its
sequence odd first, and the head is written anew when all of it is there; a copy counts once its checksum is in the head
(`sealed`). The head has a checksum of its own, so what is torn, damaged, foreign or of a newer layout is no copy.

The worker processes map the file; the sidecar only reads and writes it in pieces. All pages are there from the start
(`allot`), so no write into the mapping can fail. Layout: docs/contracts.md.
"""

import collections
import fcntl
import os
import struct
import time
import zlib

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
FIELDS = "version sequence step generation rank world kind sealed length crc32 quick"
HEAD = struct.Struct("<4sIQqQIIIIQII")
SUM = struct.Struct("<I")
SLOTS = {REPLICATED: 2, SHARDED: 4, MARKED: 2}
"""Of a member that has replicated states, or saves of the marked path (`step` is their number); of each local rank of
one that has sharded ones: own, own, held, held."""

Head = collections.namedtuple("Head", FIELDS)
"""Of a copy. `generation` is term << 32 | number; `crc32` is that of the payload, `quick` the one a rank checks when it
loads (`checkpoints.state_codec.quick_sum`)."""
Division = collections.namedtuple("Division", "kind slots size")
"""How the file is divided: `size` is that of a slot, head and payload."""


class Unusable(Exception):
    """A sentence: what is wrong with the memory as a whole."""


def path_of(volume):
    return os.path.join(volume, NAME)


# -- the whole ---------------------------------------------------------------------------------------------------------
def is_allotted(path, size):
    """The file is there, with all the pages that so many bytes have."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_size == _whole_pages(size) and found.st_blocks * 512 >= found.st_size


def _whole_pages(size):
    return size - size % PAGE


def allot(path, size):
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


def division(fd):
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


def planned(size, kind, local_world):
    """How a file of so many bytes is divided."""
    slots = SLOTS[kind] * (local_world if kind == SHARDED else 1)
    each = (size - PAGE) // slots
    return Division(kind, slots, each - each % PAGE)


def divide(fd, kind, local_world):
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


def _division_or_none(fd):
    try:
        return division(fd)
    except Unusable:
        return None


def kept(fd):
    """The newest step that every rank has, None where there is none."""
    (found,) = KEPT.unpack(os.pread(fd, KEPT.size, KEPT_AT))
    return found - 1 if found else None


def keep(fd, step):
    os.pwrite(fd, KEPT.pack(step + 1), KEPT_AT)


# -- slots -------------------------------------------------------------------------------------------------------------
def own(kind, local_rank):
    """The slots that a local rank writes to."""
    return (0, 1) if kind != SHARDED else (4 * local_rank, 4 * local_rank + 1)


def held(local_rank):
    """The slots for copies of a partner's rank."""
    return (4 * local_rank + 2, 4 * local_rank + 3)


def place(divided, slot):
    """Where a slot's head begins; its payload is a page behind it."""
    return PAGE + slot * divided.size


def room(divided):
    """Bytes of a payload."""
    return divided.size - PAGE


def head(fd, divided, slot):
    """The head of a copy that is whole, sealed or not; None where there is none."""
    data = os.pread(fd, HEAD.size + SUM.size, place(divided, slot))
    if len(data) < HEAD.size + SUM.size or data[:4] != b"ORCS" or SUM.unpack_from(data, HEAD.size)[0] != _sum(data):
        return None
    found = Head(*HEAD.unpack_from(data)[1:])
    is_none = found.sequence & 1 or found.version > VERSION or found.length > room(divided)
    return None if is_none else found


def begin(fd, divided, slot):
    """From now on nothing in this slot counts, until it has a head again. Returns the sequence of that head."""
    where = place(divided, slot) + SEQUENCE_AT
    (sequence,) = KEPT.unpack(os.pread(fd, KEPT.size, where))
    sequence = (sequence | 1) % (1 << 63)
    os.pwrite(fd, KEPT.pack(sequence), where)
    return sequence + 1


def put(fd, divided, slot, found):
    """Writes the head: all that it says is in the slot."""
    data = HEAD.pack(b"ORCS", *found)
    os.pwrite(fd, data + SUM.pack(_sum(data)), place(divided, slot))


def _sum(data):
    return zlib.crc32(data[: HEAD.size])


def copies(fd, divided, slots):
    """(slot, head) of the sealed copies in these slots, the newest first."""
    found = [(slot, head(fd, divided, slot)) for slot in slots]
    sealed = [(slot, each) for slot, each in found if each is not None and each.sealed]
    return sorted(sealed, key=lambda pair: (pair[1].step, pair[1].generation), reverse=True)


def is_given(fd, head):
    """This copy is being taken over by a partner, which counts only if its owner has it too: it waits for `kept` to
    reach it, or for the end that the sidecar has set."""
    step, generation, before, until = GIVEN.unpack(os.pread(fd, GIVEN.size, GIVEN_AT).ljust(GIVEN.size, b"\0"))
    if head is None or not step or (head.step + 1, head.generation) != (step, generation):
        return False
    (now_kept,) = KEPT.unpack(os.pread(fd, KEPT.size, KEPT_AT))
    left = until / 1000 - time.monotonic()
    return (now_kept == before or now_kept < step) and 0 < left < LONGEST_GIVEN


def claim(fd, divided, slots, generation, pinned=()):
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


def next_slot(fd, divided, slots, pinned=()):
    """The one that a save may take: never the copy that every rank has, or else the newest; None where none is free."""
    sealed, step = copies(fd, divided, slots), kept(fd)
    ages = {slot: (each.generation, each.step) for slot, each in sealed}
    every_rank_has = [slot for slot, each in sealed if each.step == step]
    safe = max(every_rank_has or ages, key=ages.get, default=None)
    free = [slot for slot in slots if slot != safe and slot not in pinned]
    return min(free, key=lambda slot: ages.get(slot, (-1, 0)), default=None)
