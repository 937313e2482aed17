"""The terminal of `outrider run`: what the ranks print, what Outrider says, and one progress line below both.

The ranks' bytes are theirs: they pass unchanged to the stream they came from. Outrider's own lines go to the standard
error, so that `outrider run ... > file` holds the training's output alone. The progress line exists only where the
standard error is a terminal; it is taken away before anything is written and put back after, and never put behind an
unfinished line of a rank.
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
    """Writers on several threads share one; every call is whole."""

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
        """Whether there is a progress line at all."""
        return self._terminal

    def say(self, line: str | Text, style: str = "") -> None:
        """One line of Outrider's own."""
        with self._lock:
            text = self._render(line, style) + b"\n"
            self._erase()
            self._write(2, (b"\n" if self._unfinished else b"") + text)
            self._unfinished = False
            self._draw()

    def ranks(self, stream: int, data: bytes) -> None:
        """Bytes that ranks wrote, on 1 (standard output) or 2."""
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
        """What the progress line says from now on; an empty text takes it away."""
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
        """A reader that went away (`| head`), a closed terminal or a full disk does not end the job: what would have
        been read is dropped, and nothing is tried there again."""
        target = self._streams.get(stream)
        if target is None:
            return
        try:
            _write_all(target, data)
        except (OSError, ValueError):
            del self._streams[stream]
            _silence(stream, target)


def _write_all(target: BinaryIO, data: bytes) -> None:
    """All of it, also where somebody else has made the terminal non-blocking: then it is waited for."""
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
    """What the interpreter still holds for a stream that takes nothing would be an error at its end: exit code 120."""
    with contextlib.suppress(OSError, ValueError):
        if target.fileno() == stream:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream)
            os.close(nowhere)


def _binary(text: TextIO | None) -> BinaryIO | None:
    return None if text is None else text.buffer


def _open_ones(streams: Mapping[int, BinaryIO | None]) -> dict[int, BinaryIO]:
    """Without those with which the command was started closed (`>&-`)."""
    return {number: stream for number, stream in streams.items() if stream is not None}


def _same_file(one: int, other: int) -> bool:
    """Whether two descriptors end in one place, as after `2>&1`."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False
