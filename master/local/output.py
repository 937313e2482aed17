"""Reads a trainer's output from its pipes, passes it on in whole lines, and writes its log.

Lines are passed on as raw bytes. A line longer than 64 KiB is passed on in pieces, because a trainer that never ends
its lines must not fill the command's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

LONGEST_LINE = 64 * 1024
READ_BYTES = 64 * 1024
LOG_BYTES = 1 << 20

OnLine = Callable[[bytes], None]


class Log:
    """A log file of at most 1 MiB, with the previous one beside it as `.1`; small, as it may be in memory.

    Lines that do not fit on a full disk are missing only in this file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def write(self, data: bytes) -> None:
        if self._size + len(data) > LOG_BYTES:
            os.close(self._descriptor)
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._open()
        with contextlib.suppress(OSError):
            self._size += os.write(self._descriptor, data)

    def close(self) -> None:
        os.close(self._descriptor)

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size


class LinePipe:
    """One pipe: `write_end` is for the child; call `close_write_end` once the child has it."""

    def __init__(self, on_line: OnLine, idle: float | None = None) -> None:
        """`idle`: seconds after which an unfinished line (a prompt) is passed on; None: never."""
        self._idle = idle
        self._timer: asyncio.TimerHandle | None = None
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._on_line = on_line
        self._buffer = bytearray()
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._loop.add_reader(self._read_end, self._readable)

    def close_write_end(self) -> None:
        os.close(self.write_end)

    def close(self) -> None:
        """Passes on what has arrived, and stops reading."""
        while self._is_open and self._readable():
            pass
        self._end()

    def _readable(self) -> bool:
        try:
            data = os.read(self._read_end, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._end()
            return False
        self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        for line in lines:
            self._on_line(bytes(line) + b"\n")
        self._buffer = bytearray(rest)
        if self._timer is not None:
            self._timer.cancel()
        if self._idle is not None:
            self._timer = self._loop.call_later(self._idle, self._flush)
        if len(self._buffer) > LONGEST_LINE:
            self._flush()
        return True

    def _flush(self) -> None:
        if self._buffer:
            self._on_line(bytes(self._buffer))
            self._buffer.clear()

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._flush()
