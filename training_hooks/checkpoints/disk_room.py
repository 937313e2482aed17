"""Saves that do not fit beside the old file: when the old file is overwritten, and when it must stay.

An atomic save needs room for two files; without Outrider a disk with room for one was enough. So on a full disk the
partial file is removed, and the save overwrites the old file in place, as the script meant it. This is done only if the
file system grants what the new file needs beyond the blocks of the old one. An allocation tests that, since the number
of free blocks may mean another user's limit. It is never done on a quota, or if the job requires atomic saves: then the
script gets the kernel's own error, and the old file stays.
"""

import errno
import os
import stat

from .atomic_write import Beside, is_required
from .overtaken import Overtaken

FULL = (errno.ENOSPC, errno.EDQUOT)
PIECE = 1 << 16
PROBED = 1 << 20
"""Bytes that are written to find out whether a file system is full: after a failure less than `PIECE` is free."""
MARGIN = 1 << 16
"""Bytes that a file system needs in addition to a file's own blocks."""


class Counter:
    """A file object that only counts the bytes written to it."""

    def __init__(self):
        self.length, self.pieces = 0, 0

    def write(self, data):
        length = memoryview(data).nbytes
        self.length, self.pieces = self.length + length, self.pieces + 1
        return length

    def flush(self):
        pass


def measured(write, target):
    """The most bytes that `write(file)` writes to a file named `target`: torch puts the name into each record twice,
    and aligns each record to 64 bytes."""
    counter = Counter()
    write(counter)
    return counter.length + counter.pieces * (64 + 2 * len(os.path.basename(target)))


def put(
    target, page, fill, size, report=lambda lack: None, may_go_in_place=True, check=lambda: None, before=lambda: None
):
    """Calls `fill(path)` so that `target` is replaced atomically if there is room for it; returns what `fill` returns.

    `size()`: the most bytes that will be written, or None if unknown; it takes a while. `report(lack)`: called with the
    error before a save that cannot be atomic, and with None after an atomic one. `check()` raises Overtaken if the old
    file must stay. `before()` is called directly before the old file is replaced."""
    place = Beside(target, page)
    try:
        try:
            _expect_room(place, size)
            result = fill(place.path)
            place.finish(lambda: check() is before() is None)
        except Overtaken:
            raise
        except Exception as error:
            lack = lack_of_room(error, place.path) if place.folder else place.lack
            if lack is None:
                raise
            if not (may_go_in_place and _fits_over(place, lack, size)):
                raise lack
            check()
            place.leave()
            report(lack)
            return fill(target)
        if place.folder:
            report(None)
        return result
    finally:
        place.leave()


def lack_of_room(error, path):
    """The kernel's error if the file cannot grow any more, or None if the save failed for another reason. torch and
    safetensors raise errors of their own."""
    seen = error
    while seen is not None:
        if isinstance(seen, OSError):
            return seen if seen.errno in FULL else None
        seen = seen.__cause__ or seen.__context__
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            for _ in range(PROBED // PIECE):
                os.write(fd, bytes(PIECE))
        finally:
            os.close(fd)
    except OSError as problem:
        return _named(problem.errno, path) if problem.errno in FULL else None
    return None


def _expect_room(place, size):
    """Raises OSError if a second file of this size cannot fit, so that the attempt does not fill the disk for
    others."""
    if place.lack:
        raise place.lack
    if not place.folder:
        return
    try:
        free = os.statvfs(place.folder)
        if free.f_bavail * free.f_frsize >= os.stat(place.target).st_size:
            return
    except OSError:
        return
    needed = _expected(size)
    lack = _refusal(place.folder, needed) if needed is not None else None
    if lack in FULL:
        raise _named(lack, place.target)


def _fits_over(place, lack, size):
    if is_required() or lack.errno == errno.EDQUOT:
        return False
    try:
        old = os.lstat(place.target)
    except OSError:
        return False
    is_ours = stat.S_ISREG(old.st_mode) and old.st_uid == os.geteuid()
    needed = _expected(size) if is_ours else None
    if needed is None:
        return False
    beyond = needed + MARGIN - old.st_blocks * 512
    return beyond <= MARGIN or (bool(place.folder) and place.empty() and _refusal(place.folder, beyond) is None)


def _expected(size):
    try:
        return size()
    except Exception:  # the save itself raises what is wrong with the state
        return None


def _refusal(folder, length):
    """The errno if this folder has no room for so many more bytes, or None if it has."""
    path = os.path.join(folder, "room")
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, max(1, length))
        finally:
            os.close(fd)
            os.unlink(path)
    except OSError as problem:
        return problem.errno
    return None


def _named(number, path):
    return OSError(number, os.strerror(number), path)
