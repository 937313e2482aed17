"""The checkpoint memory of a member, as one of its worker processes uses it.

Training waits only for the copy. A thread computes the checksums that make the copy valid. A save that comes before
they are complete takes the slot of the copy that waits for them, so training never waits for checksums.
"""

import mmap
import os
import threading

from ..abi import arena
from . import cow_tensors, state_codec

MARKED_PATH = "OUTRIDER_CHECKPOINT_PATH"


class TooBig(Exception):
    """A state of `needed` bytes does not fit into a slot of `room` bytes."""

    def __init__(self, needed, room, slots):
        super().__init__(needed, room)
        self.needed, self.room, self.slots = needed, room, slots


class Memory:
    """The mapped checkpoint memory. Raises OSError if the member has none."""

    def __init__(self, volume, local_rank, local_world):
        self.local_rank, self.local_world = local_rank, local_world
        self.fd = os.open(arena.path_of(volume), os.O_RDWR | os.O_CLOEXEC)
        self.map = mmap.mmap(self.fd, 0)
        self.lock = threading.Lock()
        self.owner, self.pinned, self._saves = {}, {}, 0
        """`owner`: the number of the last save in each slot. `pinned`: a slot that must not be reused, by the task on
        it."""

    def take(self, packed, about):
        """Copies a state into a free slot; None if both slots are in use. `about`: the head, without the copy's own
        fields."""
        divided = arena.divide(self.fd, about.kind, self.local_world)
        if packed.length > arena.room(divided):
            raise TooBig(packed.length, arena.room(divided), divided.slots)
        copy = self.begin(about._replace(length=packed.length))
        if copy is not None:
            packed.copy_to(self.map, copy.place)
        return copy

    def begin(self, about):
        """An invalidated slot to write to; None if both slots are in use, here or by another member's transfer."""
        divided = arena.divide(self.fd, about.kind, self.local_world)
        with self.lock:
            own, pinned = arena.own(about.kind, self.local_rank), list(self.pinned.values())
            claimed = arena.claim(self.fd, divided, own, about.generation, pinned)
            if claimed is None:
                return None
            slot, sequence = claimed
            where = arena.place(divided, slot)
            cow_tensors.settle(where, where + divided.size)
            self._saves += 1
            self.owner[slot] = self._saves
        return Copy(self, divided, slot, about._replace(sequence=sequence), self.owner[slot])

    def copies(self, kind):
        """[(head, copy)] of this rank, the newest first. Raises arena.Unusable."""
        divided = arena.division(self.fd)
        if divided is None or divided.kind != kind:
            return []
        slots = [slot for slot in arena.own(kind, self.local_rank) if slot < divided.slots]
        return [Copy(self, divided, slot, head, None) for slot, head in arena.copies(self.fd, divided, slots)]

    def loan(self, copy):
        """A copy-on-write view of a copy, or None. Only a copy that no other process writes to is lent (saves to a
        checkpoint path arrive from other members while ranks run). None also if the copy was overwritten since, or if
        the kernel cannot lend."""
        is_own = copy.head.kind == arena.SHARDED or (copy.head.kind == arena.REPLICATED and self.local_rank == 0)
        if not is_own or MARKED_PATH in os.environ:
            return None
        with self.lock:
            try:
                return cow_tensors.Loan(self.fd, copy.place, copy.head.length) if copy.is_as_found() else None
            except OSError:
                return None

    def kind(self):
        """The kind of the stored states (`arena.SHARDED`, …), or None if the memory is empty."""
        divided = arena.division(self.fd)
        return None if divided is None else divided.kind


class Copy:
    """One save in its slot. `number`: the number of the save, or None for a copy that was found there."""

    def __init__(self, memory, divided, slot, head, number):
        self.memory, self.divided, self.slot, self.head, self.number = memory, divided, slot, head, number
        self._loan = None

    @property
    def place(self):
        return arena.place(self.divided, self.slot) + arena.PAGE

    @property
    def room(self):
        """The bytes of the slot, as a writable view."""
        return memoryview(self.memory.map)[self.place : self.place + arena.room(self.divided)]

    @property
    def view(self):
        return memoryview(self.memory.map)[self.place : self.place + self.head.length]

    def is_as_found(self):
        """Whether no process has written to the slot since."""
        return arena.head(self.memory.fd, self.divided, self.slot) == self.head

    def is_there(self):
        """Whether no later save has taken the slot."""
        return self.memory.owner.get(self.slot) == self.number

    def seal(self):
        """Computes the checksums; returns False if a later save took the slot meanwhile."""
        sums, length = state_codec.Sums(), self.head.length
        for at in range(0, length, sums.PIECE):
            if not self.is_there():
                return False
            sums.add(self.memory.map, self.place + at, min(sums.PIECE, length - at))
        self.head = self.head._replace(sealed=1, crc32=sums.crc32, quick=sums.quick)
        with self.memory.lock:
            if self.is_there():
                arena.put(self.memory.fd, self.divided, self.slot, self.head)
                return True
        return False

    def is_sound(self):
        """Whether the checksum is right. A lent copy is checked in its own mapping, so its pages are mapped once."""
        loan = self._loan = self.memory.loan(self)
        memory, at = (self.memory.map, self.place) if loan is None else (loan.map, 0)
        return state_codec.quick_sum(memory, at, self.head.length) == self.head.quick

    def state(self, map_location="cpu", copy=True):
        """The state. Without `copy` it is valid until a save takes the slot; with `copy` it never changes by itself."""
        if self._loan is None or not copy:
            return state_codec.unpacked(self.memory.map, self.place, self.head.length, map_location, copy)
        loan, self._loan = self._loan, None
        try:
            return state_codec.unpacked(loan.map, 0, self.head.length, map_location, lend=loan.piece)
        finally:
            loan.close()

    def discard(self):
        self._loan = None
        arena.begin(self.memory.fd, self.divided, self.slot)


class Newest:
    """Runs jobs one after the other, in a thread that lives while there are jobs. A job given while another of the same
    name waits replaces it. `work` must not raise."""

    def __init__(self, work, title):
        self._work, self._title = work, title
        self._changed, self._waiting, self._is_busy = threading.Condition(), {}, False

    def give(self, name, job):
        with self._changed:
            self._waiting.pop(name, None)
            self._waiting[name] = job
            if not self._is_busy:
                self._is_busy = True
                threading.Thread(target=self._run, name=self._title, daemon=True).start()

    def _run(self):
        while True:
            with self._changed:
                if not self._waiting:
                    self._is_busy = False
                    self._changed.notify_all()
                    return
                job = self._waiting.pop(next(iter(self._waiting)))
            self._work(job)

    def wait(self, patience=None):
        """Waits until all jobs are done."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_busy, patience)
