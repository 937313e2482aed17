"""Python stacks of a worker process without ptrace.

The hooks' own thread says them, with the GIL held: it can while the main thread sits in a collective (measured: gloo
all_reduce, monitored_barrier, the store's wait). Where it cannot, because the main thread holds the GIL or there is no
such thread yet, faulthandler writes to a file when a signal comes: the stack of the thread that the signal comes to,
which is the main one. It reads frames without the GIL, so a thread that runs Python meanwhile can end the process:
20,000 dumps of all threads with one that runs ended in SIGSEGV each time, of a running main thread alone in one run of
two, of one that waits never. Hence it is the second choice.
"""

import faulthandler
import os
import signal
import sys
import threading
import time

NUMBER = signal.SIGRTMAX - 3
MOST_FRAMES, MOST_SAID = 100, 60_000
"""Frames of a thread, and characters of all: it is a datagram."""
QUIET = 0.03
"""A dump is complete when the file has not grown for this long."""


def install(path):
    """Keeps the file open for the life of the process, in the signal handler's hands."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    file = open(path, "w")
    faulthandler.register(NUMBER, file=file, all_threads=False, chain=False)
    return file


def said():
    """As faulthandler writes them, the main thread last; said by another thread of the same process."""
    frames, main = sys._current_frames(), threading.main_thread().ident
    others = [ident for ident in frames if ident not in (main, threading.get_ident())]
    text = "\n\n".join(_thread(ident, frames[ident]) for ident in others + [main] if ident in frames)
    return text[-MOST_SAID:]


def _thread(ident, frame):
    lines = ["Thread 0x%016x (most recent call first):" % ident]
    while frame is not None and len(lines) <= MOST_FRAMES:
        code = frame.f_code
        lines.append('  File "%s", line %s in %s' % (code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return "\n".join(lines)


def answers(pid):
    """Without a handler that signal kills, so look first."""
    try:
        with open("/proc/%d/status" % pid) as file:
            caught = [line for line in file if line.startswith("SigCgt:")]
        return bool(int(caught[0][7:], 16) & 1 << (NUMBER - 1))
    except (OSError, ValueError, IndexError):
        return False


class Dump:
    """One stack asked of one process; `poll` returns the text once it is complete, "" when none can come, else None."""

    def __init__(self, pid, path, patience=2.0, most=262144):
        self.path, self.until, self.most = path, time.monotonic() + patience, most
        self.size = self.start = self._size()
        self.since = 0.0
        self.asked = answers(pid)
        if self.asked:
            os.kill(pid, NUMBER)

    def _size(self):
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def poll(self):
        if not self.asked:
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
                file.seek(max(self.start, end - self.most))  # the main thread is the last
                return file.read(self.most).decode(errors="replace")
        except OSError:
            return ""
