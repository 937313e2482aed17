"""A member's memory for checkpoints, as one of its worker processes uses it.

Training waits for the copy alone. The checksums, which make it count, are taken in a thread; a save that comes before
they are there takes the place of the one that waits for them, so training never waits for them either.
"""

import mmap
import os
import threading

from ..abi import arena
from . import cow_tensors, state_codec

MARKED_PATH = "OUTRIDER_CHECKPOINT_PATH"


class TooBig(Exception):
    """`needed` and `room`: bytes of the state, and of a place for it."""

    def __init__(self, needed, room, slots):
        super().__init__(needed, room)
        self.needed, self.room, self.slots = needed, room, slots


class Memory:
    """Raises OSError where there is none."""

    def __init__(self, volume, local_rank, local_world):
        self.local_rank, self.local_world = local_rank, local_world
        self.fd = os.open(arena.path_of(volume), os.O_RDWR | os.O_CLOEXEC)
        self.map = mmap.mmap(self.fd, 0)
        self.lock = threading.Lock()
        self.owner, self.pinned, self._saves = {}, {}, 0
        """By slot the number of the save that took it last; by what is done with it a slot that may not be taken."""

    def take(self, packed, about):
        """Copies a state; None where both places are in use. `about`: the head without what only the copy tells."""
        divided = arena.divide(self.fd, about.kind, self.local_world)
        if packed.length > arena.room(divided):
            raise TooBig(packed.length, arena.room(divided), divided.slots)
        copy = self.begin(about._replace(length=packed.length))
        if copy is not None:
            packed.copy_to(self.map, copy.place)
        return copy

    def begin(self, about):
        """A place of which nothing counts from now on; None where both are in use, here or by a partner."""
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
        """[(head, its copy)] of this rank's, the newest first. Raises arena.Unusable."""
        divided = arena.division(self.fd)
        if divided is None or divided.kind != kind:
            return []
        slots = [slot for slot in arena.own(kind, self.local_rank) if slot < divided.slots]
        return [Copy(self, divided, slot, head, None) for slot, head in arena.copies(self.fd, divided, slots)]

    def loan(self, copy):
        """Where nobody but this process writes to its place; None else (a marked path's saves come from other members
        while ranks run), where it was written to since, and where the kernel cannot lend."""
        is_own = copy.head.kind == arena.SHARDED or (copy.head.kind == arena.REPLICATED and self.local_rank == 0)
        if not is_own or MARKED_PATH in os.environ:
            return None
        with self.lock:
            try:
                return cow_tensors.Loan(self.fd, copy.place, copy.head.length) if copy.is_as_found() else None
            except OSError:
                return None

    def kind(self):
        """Of what is stored here, None where nothing is."""
        divided = arena.division(self.fd)
        return None if divided is None else divided.kind


class Copy:
    """One save in its place. `number`: which save it is, None for one that was found there."""

    def __init__(self, memory, divided, slot, head, number):
        self.memory, self.divided, self.slot, self.head, self.number = memory, divided, slot, head, number
        self._loan = None

    @property
    def place(self):
        return arena.place(self.divided, self.slot) + arena.PAGE

    @property
    def room(self):
        """The bytes of its place, as a view to write to."""
        return memoryview(self.memory.map)[self.place : self.place + arena.room(self.divided)]

    @property
    def view(self):
        return memoryview(self.memory.map)[self.place : self.place + self.head.length]

    def is_as_found(self):
        """Nobody has written to it since, this process or another."""
        return arena.head(self.memory.fd, self.divided, self.slot) == self.head

    def is_there(self):
        """No later save has taken its place."""
        return self.memory.owner.get(self.slot) == self.number

    def seal(self):
        """True where it counts now, False where its place was taken meanwhile."""
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
        """What is lent is looked at where it lies then: its pages are mapped once."""
        loan = self._loan = self.memory.loan(self)
        memory, at = (self.memory.map, self.place) if loan is None else (loan.map, 0)
        return state_codec.quick_sum(memory, at, self.head.length) == self.head.quick

    def state(self, map_location="cpu", copy=True):
        """Without `copy` it is good as long as no save takes this place. With it nothing of it changes by itself."""
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
    """Does what it is given, one after the other, in a thread that lives while there is something to do. What is given
    while another of the same name waits takes its place. `work` must not raise."""

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
        """Until all is done."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_busy, patience)
