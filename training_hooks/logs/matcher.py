"""The matcher: lines of the ranks' output that fit a pattern, found beside the reader and told to the template.

It is a process of its own, a child of the reader (`reader.py`), because Python's `re` knows no limit of time: whatever
happens here, bytes pass on. Laws:

- The reader never waits for it. What it has no time for it does not see: the rest of a torn line is left out.
- Of a line the first `LONGEST_LINE` bytes are looked at. A pattern that takes more than `MOST_CPU` for one line, as the
  catastrophic ones do, is followed no more, and that is told. `re` looks for signals while it works, so a timer of this
  process's own CPU time ends it; a batch of lines is timed as a whole first, which costs nothing.
- A match is told at once. More of the same pattern and rank are counted, and told together a second later.
- The template is told by a datagram that waits until there is room: a match is not lost while the template is busy.
"""

import os
import re
import select
import signal
import socket
import struct
import time

from ..process import worker_channel

LONGEST_LINE = 1024
LONGEST_TOLD = 300
COLOURS = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
"""What a terminal is told within a line (ECMA-48's control sequences): no part of the text that a pattern is about."""
LONGEST_GROUP = 100
MOST_CPU = 0.05
"""Seconds of CPU for one pattern and one line."""
TELL_EVERY = 1.0
HEADER = struct.Struct("<BBIQQ")
"""What goes before each piece of output: what it is, which stream, rank, and the generation's term and number."""
DATA, TORN, END = 0, 1, 2
"""More of a stream; the same, after a piece that was left out; its end."""
LARGEST = HEADER.size + (1 << 16)


class TooSlow(Exception):
    """The pattern was given up in the middle of a line."""


class Clock:
    """This process's CPU time, as a limit for what this module does inside `with`: beyond it TooSlow is raised there.

    Python lets a signal's handler run wherever it is, also in what the garbage collector calls (`__del__`, the callback
    of a weak reference). What is raised in there is printed and lost; the clock rings again until our own code runs.
    """

    def __init__(self):
        self.is_armed = False
        signal.signal(signal.SIGPROF, self._ring)

    def _ring(self, number, frame):
        if self.is_armed and frame.f_globals is globals():
            self.is_armed = False
            raise TooSlow

    def __enter__(self):
        self.is_armed = True
        signal.setitimer(signal.ITIMER_PROF, MOST_CPU, MOST_CPU)

    def __exit__(self, *_):
        self.is_armed = False
        signal.setitimer(signal.ITIMER_PROF, 0)


def cut(line, longest=LONGEST_TOLD):
    return line if len(line) <= longest else line[: longest - 3] + "..."


class Pattern:
    """One pattern; `problem` says why it is not followed (any more), empty while it is."""

    def __init__(self, text, clock):
        self.text, self.clock, self.problem, self.slow_line, self._search = text, clock, "", "", None
        try:
            self._search = re.compile(text).search
        except (re.error, RecursionError, OverflowError, MemoryError) as error:
            self.problem = "the trainer's Python cannot read it: %s" % error

    def matches(self, lines):
        """[(index of the line, match)], by the laws above."""
        if self.problem:
            return []
        try:
            return self._timed(lines)
        except TooSlow:
            return self._line_by_line(lines)

    def _timed(self, lines):
        with self.clock:
            return [(at, found) for at, found in enumerate(map(self._search, lines)) if found]

    def _line_by_line(self, lines):
        found = []
        for at, line in enumerate(lines):
            try:
                found += [(at, match) for _, match in self._timed([line])]
            except TooSlow:
                self.problem = "it took more than %d ms of CPU for one line" % (1000 * MOST_CPU)
                self.slow_line = line
                break
        return found


class Lines:
    """The whole lines of one stream, from its pieces. A carriage return ends a line too."""

    def __init__(self):
        self.pending, self.skips = b"", False

    def add(self, data, is_torn=False):
        if is_torn:
            self.pending, self.skips = b"", True
        pieces = (self.pending + data).splitlines(True)
        self.pending = b""
        if pieces and self.skips:
            self.skips = not pieces.pop(0).endswith((b"\n", b"\r"))
        if pieces and not pieces[-1].endswith((b"\n", b"\r")):
            self.pending = pieces.pop()[:LONGEST_LINE]
        return [self._text(piece) for piece in pieces]

    def rest(self):
        """What has no end, at the end of the stream."""
        return [self._text(self.pending)] if self.pending else []

    def _text(self, piece):
        return COLOURS.sub(b"", piece[:LONGEST_LINE]).decode("utf-8", "replace").rstrip("\r\n")


class Told:
    """What is not told yet of one pattern and rank."""

    def __init__(self):
        self.count, self.message, self.due = 0, None, 0.0


class Matcher:
    """The process. `offered` is the reader's end of a socket, `volume` the member's."""

    def __init__(self, offered, patterns, volume):
        self.offered = offered
        clock = Clock()
        self.patterns = [Pattern(text, clock) for text in patterns]
        self.streams, self.told, self.serial = {}, {}, 0
        self.up = worker_channel.Channel(volume)
        self.up.socket.setblocking(True)

    def run(self):
        for pattern in self.patterns:
            self._tell_problem(pattern, [0, 0])
        poll = select.poll()
        poll.register(self.offered, select.POLLIN)
        while True:
            if poll.poll(self._patience()):
                data = self.offered.recv(LARGEST)
                if not data:
                    break
                self._take(data)
            self._tell(time.monotonic())
        self._tell(float("inf"))

    def _patience(self):
        due = [each.due for each in self.told.values() if each.count]
        return max(0.0, min(due) - time.monotonic()) * 1000 if due else None

    def _take(self, data):
        what, stream, rank, term, number = HEADER.unpack_from(data)
        key = (stream, rank, term, number)
        lines = self.streams.setdefault(key, Lines())
        if what == END:
            del self.streams[key]
            self._look(lines.rest(), rank, [term, number])
        else:
            self._look(lines.add(data[HEADER.size :], what == TORN), rank, [term, number])

    def _look(self, lines, rank, generation):
        for pattern in self.patterns:
            was_followed = not pattern.problem
            for at, match in pattern.matches(lines):
                self._note(pattern, match, lines[at], rank, generation)
            if was_followed:
                self._tell_problem(pattern, generation)

    def _note(self, pattern, match, line, rank, generation):
        groups = {name: cut(value, LONGEST_GROUP) for name, value in match.groupdict().items() if value is not None}
        told = self.told.setdefault((pattern.text, rank, tuple(generation)), Told())
        told.count += 1
        told.message = {
            "matched": pattern.text,
            "generation": generation,
            "rank": rank,
            "line": cut(line),
            "groups": groups,
            "at": time.monotonic(),
        }

    def _tell(self, now):
        for told in self.told.values():
            if told.count and now >= told.due:
                self.serial = max(self.serial + 1, time.time_ns())
                self._say(dict(told.message, count=told.count, serial=self.serial))
                told.count, told.due = 0, now + TELL_EVERY
        self.told = {key: told for key, told in self.told.items() if now < told.due}

    def _tell_problem(self, pattern, generation):
        if pattern.problem:
            said = {"dropped": pattern.text, "generation": generation, "reason": pattern.problem}
            self._say(dict(said, line=cut(pattern.slow_line)))

    def _say(self, message):
        self.up.send("up", message)


def begin(offered, others, patterns, volume):
    """The pid of a matcher, forked from the reader: it lets go of the `others`, and dies with the reader."""
    from ..process import tree

    reader = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        tree.die_with_parent(reader)
        for each in others:
            os.close(each)
        Matcher(socket.socket(fileno=offered), patterns, volume).run()
    finally:
        os._exit(0)
