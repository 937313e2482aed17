"""Python stacks of a worker process without ptrace.

The hooks' own thread writes them, with the GIL held. It can do so while the main thread is in a collective (measured:
gloo all_reduce, monitored_barrier, the store's wait). If it cannot, because the main thread holds the GIL or the thread
does not exist yet, faulthandler writes to a file when a signal comes: the stack of the main thread, which gets the
signal. faulthandler reads frames without the GIL, so a thread that runs Python meanwhile can crash the process: 20,000
dumps of all threads beside a running one ended in SIGSEGV each time; dumps of a running main thread alone did in one of
two attempts, of a waiting one never. Hence it is the second choice.
"""

import faulthandler
import os
import signal
import sys
import threading
import time

NUMBER = signal.SIGRTMAX - 3
MOST_FRAMES, MOST_CHARACTERS = 100, 60_000
"""Most frames of a thread, and most characters of all: they are one datagram."""
QUIET = 0.03
"""Seconds without growth of the file after which a dump is complete."""


def install(path):
    """Keeps the file open for the life of the process, for the signal handler."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    file = open(path, "w")
    faulthandler.register(NUMBER, file=file, all_threads=False, chain=False)
    return file


def text():
    """All stacks in faulthandler's format, the main thread last; called by another thread of the same process."""
    frames, main = sys._current_frames(), threading.main_thread().ident
    others = [ident for ident in frames if ident not in (main, threading.get_ident())]
    found = "\n\n".join(_thread(ident, frames[ident]) for ident in others + [main] if ident in frames)
    return found[-MOST_CHARACTERS:]


def _thread(ident, frame):
    lines = ["Thread 0x%016x (most recent call first):" % ident]
    while frame is not None and len(lines) <= MOST_FRAMES:
        code = frame.f_code
        lines.append('  File "%s", line %s in %s' % (code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return "\n".join(lines)


def answers(pid):
    """Whether the process has a handler for the signal, which would kill it otherwise."""
    try:
        with open("/proc/%d/status" % pid) as file:
            caught = [line for line in file if line.startswith("SigCgt:")]
        return bool(int(caught[0][7:], 16) & 1 << (NUMBER - 1))
    except (OSError, ValueError, IndexError):
        return False


class Dump:
    """One stack of one process; `poll` returns the text once it is complete, "" if there is none to come, else None."""

    def __init__(self, pid, path, patience=2.0, most=262144):
        self.path, self.until, self.most = path, time.monotonic() + patience, most
        self.size = self.start = self._size()
        self.since = 0.0
        self.requested = answers(pid)
        if self.requested:
            os.kill(pid, NUMBER)

    def _size(self):
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def poll(self):
        if not self.requested:
            return ""
        now, size = time.monotonic(), self._size()
        if size != self.size:
            self.size, self.since = size, now
        complete = size > self.start and now - self.since >= QUIET
        return self._text() if complete or now >= self.until else None

    def _text(self):
        try:
            with open(self.path, "rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self.start, end - self.most))  # the main thread comes last
                return file.read(self.most).decode(errors="replace")
        except OSError:
            return ""
