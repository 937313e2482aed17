"""Tensors of a loaded state that lie in the memory for checkpoints, without having been copied out of it.

The bytes of a copy are mapped privately: a page is read where it lies, and becomes this process's own when the script
writes to it. What is lent never changes by itself: before the place is written over, or this process forks, what is
still in use of it is made the process's own (`settle`). The kernel does that page by page, whatever other threads write
meanwhile (MADV_POPULATE_WRITE, Linux 5.14; without it nothing is lent). It holds only for whoever alone writes to that
place.
"""

import mmap
import os
import threading
import weakref

PRESENT, OWN = 22, 23
"""MADV_POPULATE_READ, MADV_POPULATE_WRITE: all pages at once, a fifth of what they cost one by one."""
PIECE = 16 << 20
LEAST = 1 << 16
"""Bytes of a tensor's storage from which on it is lent; smaller ones are copied."""
_lock = threading.Lock()
_loans = []
_is_told_of_forks = False


class Loan:
    """The `length` bytes of a file behind `at`, which begins a page. As long as it is open all of it is in use, then
    those pieces that somebody has. Raises OSError where the kernel cannot lend."""

    def __init__(self, fd, at, length):
        self.at, self.end = at, at + length
        self.map = mmap.mmap(fd, length, flags=mmap.MAP_PRIVATE, offset=at)
        self._mapped, self._pieces, self._is_in_a_child = weakref.ref(self.map), [], False
        _advise(self.map, 0, 1, OWN)
        _advise(self.map, 0, length, PRESENT)
        _register(self)

    def piece(self, at, count):
        """A buffer that keeps the mapping as long as it lives."""
        found = memoryview(self.map)[at : at + count]
        self._pieces.append((weakref.ref(found), at, count))
        return found

    def close(self):
        """The mapping goes with the last piece."""
        self.map = None

    def is_over(self):
        return self._mapped() is None

    def settle(self):
        """Nothing of it lies in the file any more. Raises OSError where there is no memory for that."""
        if self._is_in_a_child:
            raise OSError("there was no memory for what a process that was forked has of a loaded state")
        mapped = self._mapped()
        for at, count in self._used() if mapped is not None else ():
            _advise(mapped, at, count, OWN)

    def _used(self):
        if self.map is not None:
            return [(0, self.end - self.at)]
        return [(at, count) for piece, at, count in self._pieces if piece() is not None]

    def settle_for_a_child(self):
        """What cannot be settled is lent for as long as this process lives: the child sees it, too."""
        try:
            self.settle()
        except OSError:
            self._is_in_a_child = True


def settle(at, end):
    """Before what lies between the two in the file is written over. Raises OSError."""
    with _lock:
        for loan in [each for each in _loans if each.at < end and at < each.end]:
            loan.settle()
            _loans.remove(loan)


def _register(loan):
    global _is_told_of_forks
    with _lock:
        _loans[:] = [each for each in _loans if not each.is_over()] + [loan]
        if not _is_told_of_forks:
            _is_told_of_forks = True
            os.register_at_fork(before=_before_fork, after_in_parent=_lock.release, after_in_child=_lock.release)


def _before_fork():
    _lock.acquire()
    for loan in _loans:
        loan.settle_for_a_child()


def _advise(mapped, at, count, advice):
    """In pieces, between which other threads may run."""
    end, at = at + count, at - at % mmap.PAGESIZE
    while at < end:
        mapped.madvise(advice, at, min(PIECE, end - at))
        at += PIECE
