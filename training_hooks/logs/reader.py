"""The reader: one process beside the trainer that passes the ranks' output on, and offers it to the matcher.

An isolated Python (`-I -S`) runs it as a file, so it finds its package by its own path. Guarantees:

- Bytes pass on unchanged, into the files too. Only if ranks are prefixed is a line written in one piece. `\r` ends a
  line too, so that progress bars move. An unfinished line is shown after `IDLE` seconds; a line of another rank then
  begins on a new line.
- It lives as long as any of its inputs. It ignores SIGINT and SIGTERM, because the last lines of a rank that is being
  stopped are the most important ones.
- Passing on comes first. Each piece is offered to the matcher afterwards, and skipped if the matcher has no room.
"""

import json
import os
import select
import signal
import socket
import sys
import time

if __name__ == "__main__":
    import importlib.util

    _folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _spec = importlib.util.spec_from_file_location(
        "_outrider_hooks", os.path.join(_folder, "__init__.py"), submodule_search_locations=[_folder]
    )
    sys.modules["_outrider_hooks"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["_outrider_hooks"])
    importlib.import_module("_outrider_hooks.logs.reader").main(sys.argv[1:])
    sys.exit(0)

from . import files, matcher
from .capture import STREAMS, ignore_endings
from .matcher import DATA, END, HEADER, TORN

IDLE = 0.1
LONGEST_PIECE = 1 << 16
LARGEST_LABEL = 1 << 17
MOST_MATCHERS = 5
LAST_MATCHES = 5.0
"""Seconds that the matcher has at the end for the pieces offered to it."""


class Sink:
    """A descriptor that is written completely, or closed for good."""

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
    """One of the container's two streams, which the ranks share."""

    def __init__(self, fd):
        super().__init__(fd)
        self.unfinished = None

    def show(self, source, piece, prefix):
        """Writes a piece. If it does not end a line, the next piece of the same source continues it."""
        start = b"" if self.unfinished is source else (b"\n" if self.unfinished else b"") + prefix
        self.write(start + piece)
        self.unfinished = None if piece.endswith((b"\n", b"\r")) else source


class Offer:
    """The matcher, as the reader sees it: it exists while patterns are searched, and is restarted if it has ended."""

    def __init__(self, volume):
        self.volume, self.patterns, self.socket, self.started = volume, [], None, 0
        self.torn, self.late = set(), []

    def follow(self, patterns):
        if patterns != self.patterns:
            self.close()
            self.patterns, self.started = patterns, 0

    def give(self, of, data, others):
        """Offers one piece of the stream `of` (stream, rank, term, number); an empty piece ends the stream."""
        if not self.patterns or not (self.socket or self._begin(others)):
            return
        what = END if not data else TORN if of in self.torn else DATA
        try:
            while self.late:
                self.socket.send(self.late[0])
                del self.late[0]
            self.socket.send(HEADER.pack(what, *of) + data)
            self.torn.discard(of)
        except BlockingIOError:
            if data:
                self.torn.add(of)
            else:
                self.late.append(HEADER.pack(what, *of))
        except OSError:
            self.close()

    def _begin(self, others):
        if self.started >= MOST_MATCHERS:
            return False
        self.started += 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                matcher.begin(theirs.fileno(), [*others, ours.fileno()], self.patterns, self.volume)
            except OSError:
                ours.close()
                return False
        ours.setblocking(False)
        self.socket, self.torn, self.late = ours, set(), []
        return True

    def close(self):
        """Lets the matcher finish the offered pieces and end."""
        if self.socket:
            self.socket.close()
            self.socket = None

    def finish(self):
        """The same, and waits for it: its end of the socket closes when it ends."""
        if not self.socket:
            return
        self.socket.settimeout(LAST_MATCHES)
        try:
            for each in self.late:
                self.socket.send(each)
            self.socket.shutdown(socket.SHUT_WR)
            self.socket.recv(1)
        except OSError:
            pass


class Source:
    """One stream of one rank."""

    def __init__(self, fd, screen, prefix, file, of):
        self.fd, self.screen, self.prefix, self.file, self.of = fd, screen, prefix, file, of
        self.pending, self.since = b"", 0.0

    def read(self):
        """Passes on what is available; returns b"" at the end."""
        data = os.read(self.fd, LONGEST_PIECE)
        if self.file:
            self.file.write(data)
        if self.prefix:
            self._split(self.pending + data, is_end=not data)
        else:
            self.screen.write(data)
        return data

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
        if self.file:
            self.file.close()


def ends_of_lines(data):
    """Offsets of the ends of lines: after a newline, or after a carriage return that is not part of one."""
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
    """The process. It ends when all its inputs have ended and no more can arrive over `control`."""

    def __init__(self, control, prefix, folder, kept, volume):
        self.control, self.prefix, self.folder, self.kept = control, prefix, folder, kept
        self.screens = {"stdout": Screen(1), "stderr": Screen(2)}
        self.sources = {}
        self.offer = Offer(volume)
        self.poll = select.poll()
        self.poll.register(control, select.POLLIN)
        self.open = True

    def run(self):
        while self.open or self.sources:
            for fd, _ in self.poll.poll(self._patience()):
                if fd == self.control.fileno():
                    self._accept()
                else:
                    self._pass_on(self.sources[fd])
            now = time.monotonic()
            for source in self.sources.values():
                if source.pending and now - source.since >= IDLE:
                    source.flush()
        self.offer.finish()

    def _pass_on(self, source):
        data = source.read()
        self.offer.give(source.of, data, [*self.sources, self.control.fileno()])
        if not data:
            self._forget(source.fd)

    def _patience(self):
        return IDLE * 1000 if any(source.pending for source in self.sources.values()) else None

    def _forget(self, fd):
        self.poll.unregister(fd)
        self.sources.pop(fd).close()

    def _accept(self):
        data, ancillary, _, _ = self.control.recvmsg(LARGEST_LABEL, socket.CMSG_SPACE(4))
        if not data:
            self.poll.unregister(self.control)
            self.open = False
            return
        label = json.loads(data.decode())
        if "patterns" in label:
            self.offer.follow(label["patterns"])
        for _, _, packed in ancillary:
            fd = int.from_bytes(packed[:4], sys.byteorder)
            prefix = b"[%d]: " % label["rank"] if self.prefix else b""
            of = (STREAMS.index(label["stream"]), label["rank"], *label["generation"])
            self.sources[fd] = Source(fd, self.screens[label["stream"]], prefix, self._file(label), of)
            self.poll.register(fd, select.POLLIN)

    def _file(self, label):
        if not self.folder:
            return None
        try:
            return files.opened(self.folder, label["generation"][1], label["rank"], label["stream"], self.kept)
        except OSError as error:
            self.screens["stderr"].write(("outrider: no log files: %s\n" % error).encode())
            self.folder = ""
            return None


def main(arguments):
    control, how, folder, kept, volume = arguments
    ignore_endings()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a template that is about to fork blocks all signals
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # a matcher that has ended leaves no zombie
    Reader(socket.socket(fileno=int(control)), how == "prefix", folder, kept == "kept", volume).run()
