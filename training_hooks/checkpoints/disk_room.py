"""A save that does not fit beside the old file. When may the old file be written over, and when must it stay?

To be whole, a save needs room for two files; a disk that has room for one was enough without us. So on a full disk what
we have written is removed, and the save goes in place, as the script meant it: but only where the file system itself
grants what the new file needs beyond the blocks of the old one (it is asked by an allocation, not by a number that may
mean another user's limit), never on a quota, and never where the job has said that its saves are to be whole. Else the
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
"""Bytes. What has failed for want of room leaves less than a piece of it free."""
MARGIN = 1 << 16
"""Bytes, for what a file system needs beside a file's own blocks."""


class Counter:
    """A file object that keeps nothing: how long is what is written to it?"""

    def __init__(self):
        self.length, self.pieces = 0, 0

    def write(self, data):
        length = memoryview(data).nbytes
        self.length, self.pieces = self.length + length, self.pieces + 1
        return length

    def flush(self):
        pass


def measured(write, target):
    """Bytes that `write(file)` writes at the most, were the file called so: torch puts the name into each record twice,
    and begins each at a multiple of 64."""
    counter = Counter()
    write(counter)
    return counter.length + counter.pieces * (64 + 2 * len(os.path.basename(target)))


def put(
    target, page, fill, size, told=lambda lack: None, may_go_in_place=True, check=lambda: None, before=lambda: None
):
    """Calls `fill(path)`, so that `target` is whole wherever there is room for it; returns what it returns. `size()`:
    the bytes that it will write at the most, None where nobody knows; it takes a while. `told(lack)`: the error for
    which the save is not whole, before it is made, or None behind one that is. `check()` raises Overtaken where the old
    file must stay; `before()` is called when the old one is about to be replaced."""
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
            told(lack)
            return fill(target)
        if place.folder:
            told(None)
        return result
    finally:
        place.leave()


def lack_of_room(error, path):
    """The kernel's error for which nothing more can be written to that file; None where that is not why it failed.
    torch and safetensors say something of their own."""
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
    """Where the new file could not lie beside one like the old one, nobody else on the disk is to run out of room by
    our attempt. Raises OSError."""
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
    needed = _asked(size)
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
    needed = _asked(size) if is_ours else None
    if needed is None:
        return False
    beyond = needed + MARGIN - old.st_blocks * 512
    return beyond <= MARGIN or (bool(place.folder) and place.empty() and _refusal(place.folder, beyond) is None)


def _asked(size):
    try:
        return size()
    except Exception:  # whatever is wrong with the state, the save itself says it
        return None


def _refusal(folder, length):
    """The errno for which so many bytes more cannot be had in this folder; None where they can."""
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
