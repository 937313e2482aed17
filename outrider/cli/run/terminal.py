"""The terminal of `outrider run`: the ranks' output, Outrider's own lines, and one progress line below both.

The ranks' bytes pass unchanged to the stream they came from. Outrider's own lines go to the standard error, so that
`outrider run ... > file` writes only the training's output to the file. The progress line exists only if the standard
error is a terminal. It is erased before anything is written and drawn again after it, but never after an unfinished
line of a rank.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
import threading
from collections.abc import Mapping
from typing import BinaryIO, TextIO

from rich.console import Console
from rich.text import Text

ERASE = b"\r\x1b[2K"


class Screen:
    """A terminal that several threads may use; each call writes without interruption by another."""

    def __init__(self, out: BinaryIO | None = None, err: BinaryIO | None = None, terminal: bool | None = None) -> None:
        self._streams = _open_ones({1: out or _binary(sys.stdout), 2: err or _binary(sys.stderr)})
        self._terminal = bool(sys.stderr and sys.stderr.isatty()) if terminal is None else terminal
        self._shared = terminal or (out is None and err is None and _same_file(1, 2))
        self._lock = threading.Lock()
        self._progress = b""
        self._drawn = False
        self._unfinished = False
        self._rendered = io.StringIO()
        self._console = Console(
            file=self._rendered, force_terminal=self._terminal, soft_wrap=True, highlight=False, markup=False
        )

    @property
    def is_terminal(self) -> bool:
        """Whether there is a progress line."""
        return self._terminal

    def say(self, line: str | Text, style: str = "") -> None:
        """Write one of Outrider's own lines."""
        with self._lock:
            text = self._render(line, style) + b"\n"
            self._erase()
            self._write(2, (b"\n" if self._unfinished else b"") + text)
            self._unfinished = False
            self._draw()

    def ranks(self, stream: int, data: bytes) -> None:
        """Pass on bytes that ranks wrote, to stream 1 (standard output) or 2 (standard error)."""
        if not data:
            return
        with self._lock:
            shown = stream == 2 or self._shared
            if shown:
                self._erase()
            self._write(stream, data)
            if shown:
                self._unfinished = not data.endswith((b"\n", b"\r"))
                self._draw()

    def progress(self, line: str) -> None:
        """Set the text of the progress line; an empty text removes it."""
        if not self._terminal:
            return
        with self._lock:
            width = max(10, self._console.width - 1)
            text = Text(line, style="dim", no_wrap=True)
            text.truncate(width, overflow="ellipsis")
            self._erase()
            self._progress = self._render(text, "") if line else b""
            self._draw()

    def _render(self, line: str | Text, style: str) -> bytes:
        self._console.print(Text(line, style=style) if isinstance(line, str) else line, end="")
        rendered = self._rendered.getvalue()
        self._rendered.seek(0)
        self._rendered.truncate()
        return rendered.encode(errors="replace")

    def _draw(self) -> None:
        if self._progress and not self._unfinished:
            self._write(2, self._progress)
            self._drawn = True

    def _erase(self) -> None:
        if self._drawn:
            self._write(2, ERASE)
            self._drawn = False

    def _write(self, stream: int, data: bytes) -> None:
        """Write to a stream. If its reader has gone (`| head`), its terminal is closed or its disk is full, the job
        continues: the stream is dropped and never written to again."""
        target = self._streams.get(stream)
        if target is None:
            return
        try:
            _write_all(target, data)
        except (OSError, ValueError):
            del self._streams[stream]
            _silence(stream, target)


def _write_all(target: BinaryIO, data: bytes) -> None:
    """Write all bytes. If another process has made the terminal non-blocking, wait until it accepts more."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[target.write(rest) or 0 :]
        except BlockingIOError as full:
            rest = rest[full.characters_written :]
            select.select((), (target,), ())
    while True:
        try:
            return target.flush()
        except BlockingIOError:
            select.select((), (target,), ())


def _silence(stream: int, target: BinaryIO) -> None:
    """Point a broken stream to /dev/null. The interpreter flushes its buffer at exit, and would end with code 120."""
    with contextlib.suppress(OSError, ValueError):
        if target.fileno() == stream:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream)
            os.close(nowhere)


def _binary(text: TextIO | None) -> BinaryIO | None:
    return None if text is None else text.buffer


def _open_ones(streams: Mapping[int, BinaryIO | None]) -> dict[int, BinaryIO]:
    """The streams that were not closed (`>&-`) when the command started."""
    return {number: stream for number, stream in streams.items() if stream is not None}


def _same_file(one: int, other: int) -> bool:
    """Whether two descriptors are the same file, as after `2>&1`."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False
