"""The ranks' output, prefixed by rank and kept in files, through one small reader process beside the trainer.

It stands only where OUTRIDER_PREFIX or OUTRIDER_LOG_DIR asks for it; else the ranks inherit the container's output
untouched. The reader is spawned, not forked, so that it holds nothing of the template's memory, and it lives as long as
any of its inputs: it ignores SIGINT and SIGTERM, because the last lines of a rank that is being ended are the ones that
matter. What it has to guarantee:

- Nothing that a rank has written is lost by a kill -9 of the rank: it is in the pipe, and the reader has the other end.
- A rank never dies of its reader (a print would raise BrokenPipeError): the owner holds a second copy of each reading
  end, and `tend` starts a new reader on them.
- Bytes pass on unchanged into the files. On the screen a line is written in one piece; `\r` ends a line too, so that
  progress bars move; what has no end yet is shown after `IDLE` seconds, and a line of another rank then starts on a
  line of its own.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

IDLE = 0.1
LONGEST_PIECE = 1 << 16
MOST_READERS = 5
STREAMS = ("stdout", "stderr")


class Outlet:
    """The owner's side. `wanted` is False where output is inherited. `pid` is the reader's, to be kept alive by endings
    and left out of what counts as the trainer's processes; 0 while there is none."""

    def __init__(self, environ=None):
        environ = os.environ if environ is None else environ
        self.prefix = environ.get("OUTRIDER_PREFIX") == "1"
        self.folder = environ.get("OUTRIDER_LOG_DIR", "")
        self.wanted = self.prefix or bool(self.folder)
        self._reader, self._control, self._held, self._started = None, None, [], 0

    @property
    def pid(self):
        return self._reader.pid if self._reader else 0

    @property
    def keep(self):
        return (self.pid,) if self.pid else ()

    def open(self, generation, rank):
        """(stdout fd, stderr fd) for one rank of a generation `(term, number)`, to be closed by the caller once
        the rank has them; None where the rank inherits the container's."""
        if not self.wanted:
            return None
        try:
            writers = []
            for stream in STREAMS:
                reading, writing = os.pipe()
                writers.append(writing)
                self._held.append((reading, {"stream": stream, "rank": rank, "number": generation[1]}))
            self._hand_over(self._held[-2:])
            return tuple(writers)
        except OSError:
            return None

    def forget(self):
        """The generation's ranks are reaped: the reader's own copies are enough for what is still in the pipes."""
        for reading, _ in self._held:
            os.close(reading)
        self._held = []

    def tend(self):
        """Called when a child has ended: starts a new reader where it was that."""
        if self._reader and self._reader.poll() is not None:
            self._control.close()
            self._reader = None
            if self._held and self._started < MOST_READERS:
                try:
                    self._hand_over(self._held)
                except OSError:
                    pass

    def finish(self, seconds=2.0):
        """No rank will come any more: lets the reader write what is left."""
        self.forget()
        if not self._reader:
            return
        self._control.close()
        try:
            self._reader.wait(seconds)
        except subprocess.TimeoutExpired:
            pass

    def _hand_over(self, inputs):
        if not self._reader:
            self._spawn()
        for reading, label in inputs:
            descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, reading.to_bytes(4, sys.byteorder))]
            self._control.sendmsg([json.dumps(label).encode()], descriptors)

    def _spawn(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(theirs.fileno())]
            command += ["prefix" if self.prefix else "plain", self.folder]
            self._reader = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], preexec_fn=ignore_endings, stdin=subprocess.DEVNULL
            )
        self._control = ours
        self._started += 1


def ignore_endings():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


class Sink:
    """A descriptor that is written to as a whole, or given up for good."""

    def __init__(self, fd):
        self.fd = fd

    def write(self, data):
        view = memoryview(data)
        while view and self.fd is not None:
            try:
                view = view[os.write(self.fd, view) :]
            except BlockingIOError:
                select.select([], [self.fd], [])
            except OSError:
                self.fd = None


class Screen(Sink):
    """One of the container's two streams, on which the ranks take turns."""

    def __init__(self, fd):
        super().__init__(fd)
        self.unfinished = None

    def show(self, source, piece, prefix):
        """`piece` ends a line, or does not: then the next of the same source goes on behind it."""
        start = b"" if self.unfinished is source else (b"\n" if self.unfinished else b"") + prefix
        self.write(start + piece)
        self.unfinished = None if piece.endswith((b"\n", b"\r")) else source


class Source:
    """One stream of one rank."""

    def __init__(self, fd, screen, prefix, file):
        self.fd, self.screen, self.prefix, self.file = fd, screen, prefix, file
        self.pending, self.since = b"", 0.0

    def read(self):
        """False at the end."""
        data = os.read(self.fd, LONGEST_PIECE)
        if self.file:
            self.file.write(data)
        if not self.prefix:
            self.screen.write(data)
            return bool(data)
        self._split(self.pending + data, is_end=not data)
        return bool(data)

    def _split(self, data, is_end):
        begin = 0
        for end in ends_of_lines(data):
            self.screen.show(self, data[begin:end], self.prefix)
            begin = end
        self.pending, self.since = data[begin:], time.monotonic()
        if is_end or len(self.pending) >= LONGEST_PIECE:
            self.flush()

    def flush(self):
        if self.pending:
            self.screen.show(self, self.pending, self.prefix)
            self.pending = b""

    def close(self):
        os.close(self.fd)
        if self.file and self.file.fd is not None:
            os.close(self.file.fd)


def ends_of_lines(data):
    """Where lines end: after a newline, or a carriage return that is known not to belong to one."""
    place = 0
    while True:
        found = [at for at in (data.find(b"\n", place), data.find(b"\r", place)) if at >= 0]
        if not found:
            return
        place = min(found) + 1
        if data[place - 1 : place] == b"\r":
            if place == len(data):
                return
            if data[place : place + 1] == b"\n":
                place += 1
        yield place


class Reader:
    """The reader process."""

    def __init__(self, control, prefix, folder):
        self.control, self.prefix, self.folder = control, prefix, folder
        self.screens = {"stdout": Screen(1), "stderr": Screen(2)}
        self.sources = {}
        self.poll = select.poll()
        self.poll.register(control, select.POLLIN)
        self.open = True

    def run(self):
        while self.open or self.sources:
            for fd, _ in self.poll.poll(self._patience()):
                if fd == self.control.fileno():
                    self._accept()
                elif not self.sources[fd].read():
                    self._forget(fd)
            now = time.monotonic()
            for source in self.sources.values():
                if source.pending and now - source.since >= IDLE:
                    source.flush()

    def _patience(self):
        return IDLE * 1000 if any(source.pending for source in self.sources.values()) else None

    def _forget(self, fd):
        self.poll.unregister(fd)
        self.sources.pop(fd).close()

    def _accept(self):
        data, ancillary, _, _ = self.control.recvmsg(4096, socket.CMSG_SPACE(4))
        if not data:
            self.poll.unregister(self.control)
            self.open = False
            return
        label = json.loads(data.decode())
        for _, _, packed in ancillary:
            fd = int.from_bytes(packed[:4], sys.byteorder)
            prefix = b"[%d]: " % label["rank"] if self.prefix else b""
            self.sources[fd] = Source(fd, self.screens[label["stream"]], prefix, self._file(label))
            self.poll.register(fd, select.POLLIN)

    def _file(self, label):
        if not self.folder:
            return None
        folder = os.path.join(self.folder, str(label["number"]), str(label["rank"]))
        try:
            os.makedirs(folder, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            return Sink(os.open(os.path.join(folder, label["stream"] + ".log"), flags, 0o644))
        except OSError as error:
            self.screens["stderr"].write(("outrider: no log files: %s\n" % error).encode())
            self.folder = ""
            return None


if __name__ == "__main__":
    ignore_endings()
    Reader(socket.socket(fileno=int(sys.argv[1])), sys.argv[2] == "prefix", sys.argv[3]).run()
