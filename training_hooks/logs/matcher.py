"""The matcher: searches the ranks' output for patterns beside the reader, and reports matches to the template.

It is its own process, a child of the reader (`reader.py`), because Python's `re` has no time limit: whatever happens
here, bytes pass on. Rules:

- The reader never waits for it. Pieces for which the matcher has no time are skipped; the rest of a torn line is left
  out.
- Only the first `LONGEST_LINE` bytes of a line are searched. A pattern that takes more than `MOST_CPU` for one line, as
  catastrophic ones do, is dropped, and that is reported. `re` checks for signals while it works, so a timer of this
  process's own CPU time ends it; a batch of lines is timed as a whole first, which costs nothing.
- A match is reported at once. More matches of the same pattern and rank are counted, and reported together one second
  later.
- The datagram to the template waits until there is room: no match is lost while the template is busy.
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
LONGEST_LINE_REPORTED = 300
COLOURS = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
"""Terminal control sequences within a line (ECMA-48), which are not part of the text that a pattern searches."""
LONGEST_GROUP = 100
MOST_CPU = 0.05
"""Seconds of CPU for one pattern and one line."""
REPORT_EVERY = 1.0
HEADER = struct.Struct("<BBIQQ")
"""Header of each piece of output: what it is, which stream, rank, and the generation's term and number."""
DATA, TORN, END = 0, 1, 2
"""Kinds of pieces: more of a stream; the same after a skipped piece; its end."""
LARGEST = HEADER.size + (1 << 16)


class TooSlow(Exception):
    """The pattern exceeded its CPU time within a line."""


class Clock:
    """Limits the CPU time of this module's code inside `with`: beyond the limit TooSlow is raised there.

    Python may run a signal handler anywhere, also in code called by the garbage collector (`__del__`, the callback of a
    weak reference). An exception raised there is printed and lost, so the timer repeats until this module's own code
    runs.
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


def cut(line, longest=LONGEST_LINE_REPORTED):
    return line if len(line) <= longest else line[: longest - 3] + "..."


class Pattern:
    """One pattern; `problem` is the reason why it is not searched (any more), or ""."""

    def __init__(self, text, clock):
        self.text, self.clock, self.problem, self.slow_line, self._search = text, clock, "", "", None
        try:
            self._search = re.compile(text).search
        except (re.error, RecursionError, OverflowError, MemoryError) as error:
            self.problem = "the trainer's Python cannot read it: %s" % error

    def matches(self, lines):
        """[(index of the line, match)], by the rules above."""
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
    """Assembles the complete lines of one stream from its pieces. A carriage return ends a line too."""

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
        """The unfinished line at the end of the stream."""
        return [self._text(self.pending)] if self.pending else []

    def _text(self, piece):
        return COLOURS.sub(b"", piece[:LONGEST_LINE]).decode("utf-8", "replace").rstrip("\r\n")


class Pending:
    """Matches of one pattern and rank that are not reported yet."""

    def __init__(self):
        self.count, self.message, self.due = 0, None, 0.0


class Matcher:
    """The process. `offered` is its end of the reader's socket, `volume` the member's volume."""

    def __init__(self, offered, patterns, volume):
        self.offered = offered
        clock = Clock()
        self.patterns = [Pattern(text, clock) for text in patterns]
        self.streams, self.pending, self.serial = {}, {}, 0
        self.up = worker_channel.Channel(volume)
        self.up.socket.setblocking(True)

    def run(self):
        for pattern in self.patterns:
            self._report_problem(pattern, [0, 0])
        poll = select.poll()
        poll.register(self.offered, select.POLLIN)
        while True:
            if poll.poll(self._patience()):
                data = self.offered.recv(LARGEST)
                if not data:
                    break
                self._take(data)
                self._report(time.monotonic())
            self._report(float("inf"))

    def _patience(self):
        due = [each.due for each in self.pending.values() if each.count]
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
                self._report_problem(pattern, generation)

    def _note(self, pattern, match, line, rank, generation):
        groups = {name: cut(value, LONGEST_GROUP) for name, value in match.groupdict().items() if value is not None}
        pending = self.pending.setdefault((pattern.text, rank, tuple(generation)), Pending())
        pending.count += 1
        pending.message = {
            "matched": pattern.text,
            "generation": generation,
            "rank": rank,
            "line": cut(line),
            "groups": groups,
            "at": time.monotonic(),
        }

    def _report(self, now):
        for pending in self.pending.values():
            if pending.count and now >= pending.due:
                self.serial = max(self.serial + 1, time.time_ns())
                self._send(dict(pending.message, count=pending.count, serial=self.serial))
                pending.count, pending.due = 0, now + REPORT_EVERY
        self.pending = {key: pending for key, pending in self.pending.items() if now < pending.due}

    def _report_problem(self, pattern, generation):
        if pattern.problem:
            message = {"dropped": pattern.text, "generation": generation, "reason": pattern.problem}
            self._send(dict(message, line=cut(pattern.slow_line)))

    def _send(self, message):
        self.up.send("up", message)


def begin(offered, others, patterns, volume):
    """Forks a matcher from the reader and returns its pid: it closes the `others`, and dies with the reader."""
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
