"""Writes the ranks' output to files, one per stream and rank: `FOLDER/GENERATION/RANK/stdout.log`.

In a folder that the user has named, the files grow without a limit. In Outrider's own folder (OUTRIDER_LOG_KEEP) they
are bounded: a full file becomes `stdout.log.1` and a new one begins, and only the newest generations are kept. There
each file has its times beside it in `stdout.times`, with lines `OFFSET UNIX_TIME`, so that `outrider logs` can merge
the ranks' lines in order of time.
"""

import fcntl
import os
import shutil
import struct
import termios
import time

MOST_BYTES = 2 << 20
"""Most bytes of one file; each stream has two."""
MOST_GENERATIONS = 20
TIME_EVERY = 0.5
"""Seconds between two times of one file."""
LAST_BYTES, LAST_LINES = 4096, 15
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class File:
    """The file of one stream, written as bytes arrive; after the first error it is closed."""

    def __init__(self, path, bounded):
        self.path, self.bounded = path, bounded
        self.fd, self.times, self.size, self.timed = -1, -1, 0, 0.0
        self._open()

    def _open(self):
        self.fd = os.open(self.path, FLAGS, 0o644)
        self.size = os.fstat(self.fd).st_size
        if self.bounded:
            self.times, self.timed = os.open(times_of(self.path), FLAGS, 0o644), 0.0

    def write(self, data):
        if self.fd < 0:
            return
        try:
            if self.bounded:
                self._bound(len(data))
            view = memoryview(data)
            while view:
                view = view[os.write(self.fd, view) :]
            self.size += len(data)
        except OSError:
            self.close()

    def _bound(self, more):
        if self.size and self.size + more > MOST_BYTES:
            self.close()
            os.replace(self.path, self.path + ".1")
            os.replace(times_of(self.path), times_of(self.path) + ".1")
            self._open()
        now = time.time()
        if abs(now - self.timed) >= TIME_EVERY:
            self.timed = now
            os.write(self.times, b"%d %.3f\n" % (self.size, now))

    def close(self):
        for fd in (self.fd, self.times):
            if fd >= 0:
                os.close(fd)
        self.fd = self.times = -1


def times_of(path):
    return os.path.splitext(path)[0] + ".times"


def path_of(folder, generation, rank, stream):
    return os.path.join(folder, str(generation), str(rank), stream + ".log")


def opened(folder, generation, rank, stream, bounded):
    """The File; raises OSError."""
    path = path_of(folder, generation, rank, stream)
    if not os.path.isdir(os.path.dirname(path)):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if bounded:
            forget_oldest(folder)
    return File(path, bounded)


def forget_oldest(folder):
    numbers = sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    for number in numbers[:-MOST_GENERATIONS]:
        shutil.rmtree(os.path.join(folder, str(number)), ignore_errors=True)


def last_lines(path, reading, reader, seconds):
    """The end of the file of a rank that has just ended. `reading` is the pipe that the process `reader` may not have
    emptied yet; it has `seconds` to do so. What it has read is in the file once it waits again. "" if there is no
    file."""
    until = time.monotonic() + seconds
    while (_unread(reading) or not _waits(reader)) and time.monotonic() < until:
        time.sleep(0.002)
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LAST_BYTES))
            text = file.read(LAST_BYTES).decode(errors="replace")
    except OSError:
        return ""
    lines = text.replace("\r", "\n").split("\n")
    whole = lines[1:] if size > LAST_BYTES else lines
    return "\n".join([line for line in whole if line.strip()][-LAST_LINES:])


def _waits(pid):
    """Whether the process waits for something else than a disk; a process that is gone does too."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"R", b"D")
    except OSError:
        return True


def _unread(fd):
    try:
        return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]
    except OSError:
        return 0
