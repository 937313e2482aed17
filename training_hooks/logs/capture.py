"""Captures the ranks' output through a reader process beside the trainer, to prefix it, save it, or search it.

If none of that is requested (OUTRIDER_PREFIX, OUTRIDER_LOG_DIR, the patterns of a start order), the ranks inherit the
container's output unchanged. The reader (`reader.py`) is spawned, not forked, so that it has nothing of the template's
memory; it lives as long as any of its inputs. Guarantees:

- A kill -9 of a rank loses nothing that it has written: the bytes are in the pipe, and the reader has the other end.
- A rank never dies because of its reader (a print would raise BrokenPipeError), and never waits for a dead one: the
  owner has a second copy of each reading end. `tend` starts a new reader on them. If one reader after the other dies,
  or none can be started, the owner passes the bytes on itself, unchanged.
- The owner waits for a reader only to learn why a rank without an exception has ended: `READ_WITHIN` seconds per
  generation.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

from . import files

READER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reader.py")
STREAMS = ("stdout", "stderr")
MOST_READERS = 5
"""Most readers started in one generation."""
CARRY_EVERY = 0.02
READ_WITHIN = 1.0
"""Seconds per generation that the owner gives its reader to write down why ranks have ended."""
MOST_CARRIED = 64
"""Most pieces of a stream that the owner passes on before it returns to its other duties."""


class Outlet:
    """The owner's side. `pid` is the reader's, or 0 while there is none; endings must not signal it, and it does not
    count as a process of the trainer."""

    def __init__(self, environ=None):
        environ = os.environ if environ is None else environ
        self.prefix = environ.get("OUTRIDER_PREFIX") == "1"
        self.folder, self.volume = environ.get("OUTRIDER_LOG_DIR", ""), environ.get("OUTRIDER_DIR", "")
        self.kept = environ.get("OUTRIDER_LOG_KEEP") == "1"
        self.by_lines = self.prefix or bool(self.folder)
        """A rank's Python writes line by line; if only patterns are searched, it buffers as without Outrider."""
        self.patterns = []
        self._reader, self._control, self._held, self._started = None, None, [], 0
        self._patience = READ_WITHIN

    @property
    def pid(self):
        return self._reader.pid if self._reader else 0

    @property
    def keep(self):
        return (self.pid,) if self.pid else ()

    @property
    def pause(self):
        """Seconds until the next `tend`, or None if SIGCHLD triggers it."""
        return CARRY_EVERY if self._held and not self._reader else None

    def follow(self, patterns):
        """Sets the patterns for the lines of the ranks that are opened from now on."""
        self.patterns = [str(each) for each in patterns or ()]
        if self._reader:
            self._tell_patterns()

    def open(self, generation, rank):
        """(stdout fd, stderr fd) for one rank of a generation `(term, number)`, which the caller closes once the rank
        has them; None if the rank inherits the container's."""
        if not (self.by_lines or self.patterns):
            return None
        self.tend()
        writers, held = [], []
        try:
            for stream in STREAMS:
                reading, writing = os.pipe()
                writers.append(writing)
                held.append((reading, {"stream": stream, "rank": rank, "generation": list(generation)}))
            self._hand_over(held)
        except OSError:
            for fd in writers + [reading for reading, _ in held]:
                os.close(fd)
            return None
        self._held += held
        return tuple(writers)

    def last_lines(self, rank):
        """The last stderr lines of a rank that has just ended; "" if they are in no file."""
        for reading, label in self._held if self.folder else ():
            if label["rank"] == rank and label["stream"] == "stderr":
                path = files.path_of(self.folder, label["generation"][1], rank, "stderr")
                began = time.monotonic()
                text = files.last_lines(path, reading, self.pid, self._patience)
                self._patience = max(0.0, self._patience - (time.monotonic() - began))
                return text
        return ""

    def forget(self):
        """Called when the generation's ranks are reaped: the reader's own copies suffice for what is still in the
        pipes."""
        if self._held and not self._reader:
            self._carry()
        for reading, _ in self._held:
            os.close(reading)
        self._held, self._started, self._patience = [], 0, READ_WITHIN

    def tend(self, may_start=True):
        """Called when a child may have ended, or `pause` is over: replaces a reader that has ended, if it
        `may_start`."""
        if self._reader and self._reader.poll() is not None:
            self._control.close()
            self._reader = None
        if self._held and not self._reader:
            if may_start and self._started < MOST_READERS:
                self._begin_again()
            else:
                self._carry()

    def finish(self, seconds=2.0):
        """Called when no rank will follow: lets the reader write what is left."""
        self.forget()
        if not self._reader:
            return
        self._control.close()
        try:
            self._reader.wait(seconds)
        except subprocess.TimeoutExpired:
            pass

    def _begin_again(self):
        try:
            self._hand_over(self._held)
        except OSError:
            self._started = MOST_READERS

    def _carry(self):
        """Reads no more than can be written at once: a pipe that is ready takes PIPE_BUF bytes."""
        for reading, label in self._held:
            target = 1 + STREAMS.index(label["stream"])
            for _ in range(MOST_CARRIED):
                if not (_is_ready(reading, select.POLLIN) and _is_ready(target, select.POLLOUT)):
                    break
                if not _copied(reading, target):
                    break

    def _hand_over(self, inputs):
        if not self._reader:
            self._spawn()
        for reading, label in inputs:
            descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, reading.to_bytes(4, sys.byteorder))]
            self._control.sendmsg([json.dumps(label).encode()], descriptors)

    def _tell_patterns(self):
        try:
            self._control.send(json.dumps({"patterns": self.patterns}, ensure_ascii=False).encode())
        except OSError:
            pass  # the reader has ended; the next one gets the message

    def _spawn(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-I", "-S", READER, str(theirs.fileno())]
            command += ["prefix" if self.prefix else "plain", self.folder, "kept" if self.kept else "", self.volume]
            self._reader = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], preexec_fn=ignore_endings, stdin=subprocess.DEVNULL
            )
        ours.setblocking(False)
        self._control = ours
        self._started += 1
        self._tell_patterns()


def ignore_endings():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _is_ready(fd, what):
    poll = select.poll()
    poll.register(fd, what)
    return any(found & what for _, found in poll.poll(0))


def _copied(reading, target):
    """Copies one piece; returns False at the end of the stream, or if the target is closed."""
    try:
        data = os.read(reading, select.PIPE_BUF)
        os.write(target, data)
    except OSError:
        return False
    return bool(data)
