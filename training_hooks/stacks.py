"""Python stacks of a worker process without ptrace: faulthandler writes them to a file when the signal comes, also
while the main thread sits in a collective (measured: gloo all_reduce, monitored_barrier, the store's wait)."""

import faulthandler
import os
import signal
import time

NUMBER = signal.SIGRTMAX - 3
QUIET = 0.03
"""A dump is complete when the file has not grown for this long."""


def install(path):
    """Keeps the file open for the life of the process, in the signal handler's hands."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    file = open(path, "w")
    faulthandler.register(NUMBER, file=file, all_threads=True, chain=False)
    return file


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
