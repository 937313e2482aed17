"""Tensors of a loaded state that stay in the checkpoint memory instead of being copied out of it.

The bytes of a copy are mapped privately: a page is read where it lies, and becomes this process's own when the script
writes to it. A lent tensor never changes by itself: before its memory is overwritten, or this process forks, every page
still in use becomes the process's own (`settle`). The kernel does that page by page, whatever other threads write
meanwhile (MADV_POPULATE_WRITE, Linux 5.14; without it nothing is lent). This works only if no other process writes to
that part of the memory.
"""

import mmap
import os
import threading
import weakref

PRESENT, OWN = 22, 23
"""MADV_POPULATE_READ and MADV_POPULATE_WRITE: all pages at once, at a fifth of the cost of one by one."""
PIECE = 16 << 20
LEAST = 1 << 16
"""Number of bytes from which a tensor's storage is lent; smaller ones are copied."""
_lock = threading.Lock()
_loans = []
_watches_forks = False


class Loan:
    """`length` bytes of a file from `at`, a page boundary. While it is open all of it is in use, afterwards the pieces
    that still have a user. Raises OSError if the kernel cannot lend."""

    def __init__(self, fd, at, length):
        self.at, self.end = at, at + length
        self.map = mmap.mmap(fd, length, flags=mmap.MAP_PRIVATE, offset=at)
        self._mapped, self._pieces, self._is_in_a_child = weakref.ref(self.map), [], False
        _advise(self.map, 0, 1, OWN)
        _advise(self.map, 0, length, PRESENT)
        _register(self)

    def piece(self, at, count):
        """A buffer that keeps the mapping alive."""
        found = memoryview(self.map)[at : at + count]
        self._pieces.append((weakref.ref(found), at, count))
        return found

    def close(self):
        """Ends the loan; the mapping is freed with its last piece."""
        self.map = None

    def is_over(self):
        return self._mapped() is None

    def settle(self):
        """Makes every page in use the process's own. Raises OSError if there is no memory for that."""
        if self._is_in_a_child:
            raise OSError("not enough memory for the loaded state that a forked process still uses")
        mapped = self._mapped()
        for at, count in self._used() if mapped is not None else ():
            _advise(mapped, at, count, OWN)

    def _used(self):
        if self.map is not None:
            return [(0, self.end - self.at)]
        return [(at, count) for piece, at, count in self._pieces if piece() is not None]

    def settle_for_a_child(self):
        """Settles before a fork. A loan that cannot be settled stays for the life of this process: the child uses it
        too."""
        try:
            self.settle()
        except OSError:
            self._is_in_a_child = True


def settle(at, end):
    """Settles the loans between two offsets before that part of the file is overwritten. Raises OSError."""
    with _lock:
        for loan in [each for each in _loans if each.at < end and at < each.end]:
            loan.settle()
            _loans.remove(loan)


def _register(loan):
    global _watches_forks
    with _lock:
        _loans[:] = [each for each in _loans if not each.is_over()] + [loan]
        if not _watches_forks:
            _watches_forks = True
            os.register_at_fork(before=_before_fork, after_in_parent=_lock.release, after_in_child=_lock.release)


def _before_fork():
    _lock.acquire()
    for loan in _loans:
        loan.settle_for_a_child()


def _advise(mapped, at, count, advice):
    """Advises in pieces, between which other threads can run."""
    end, at = at + count, at - at % mmap.PAGESIZE
    while at < end:
        mapped.madvise(advice, at, min(PIECE, end - at))
        at += PIECE
