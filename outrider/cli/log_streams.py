"""Reads the files of the ranks' output that `training_hooks.logs.files` writes.

Each is `[MEMBER/]GENERATION/RANK/stdout.log`, with its older part beside it as `stdout.log.1`, and the times of lines
in both unless the files are those of --log-dir.
"""

from __future__ import annotations

import bisect
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

STREAMS = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its line end. `time` is the approximate Unix time of the write; 0 if no times are kept."""

    time: float
    stream: Stream
    text: bytes


class Stream:
    """One stream of one rank in one generation; each read continues after the one before."""

    def __init__(self, path: Path, member: str, generation: int, rank: int) -> None:
        self.path, self.member, self.generation, self.rank = path, member, generation, rank
        self._inode, self._at, self._pending = 0, 0, b""
        """The inode of the file read last, the offset reached in it, and the text after its last line end."""

    @property
    def is_timed(self) -> bool:
        return _times_of(self.path).exists()

    def lines(self, is_over: bool = True) -> Iterator[Line]:
        """The complete lines since the last call; with `is_over` also an unfinished last line."""
        times: list[tuple[int, float]] = []
        with contextlib.ExitStack() as stack:
            for file in self._unread(stack):
                inode = os.fstat(file.fileno()).st_ino
                self._at = self._at if inode == self._inode else 0
                self._inode = inode
                file.seek(self._at)
                yield from self._whole_lines(file, times := _times(file))
        if is_over and self._pending:
            yield Line(times[-1][1] if times else 0.0, self, self._pending)
            self._pending = b""

    def _unread(self, stack: contextlib.ExitStack) -> list[BinaryIO]:
        """The files with unread lines, the older one first. A file that is renamed meanwhile is opened only once."""
        found: dict[int, BinaryIO] = {}
        for path in (self.path, Path(f"{self.path}.1")):
            with contextlib.suppress(OSError):
                file = stack.enter_context(path.open("rb"))
                found.setdefault(os.fstat(file.fileno()).st_ino, file)
        files = list(found.values())
        return files[:1] if self._inode in list(found)[:1] else files[::-1]

    def _whole_lines(self, file: BinaryIO, times: list[tuple[int, float]]) -> Iterator[Line]:
        for piece in iter(lambda: file.read(1 << 16), b""):
            begin = self._at - len(self._pending)
            self._at += len(piece)
            *whole, self._pending = (self._pending + piece).split(b"\n")
            for text in whole:
                place = bisect.bisect_right(times, (begin, float("inf")))
                yield Line(times[place - 1][1] if place else 0.0, self, text.rstrip(b"\r"))
                begin += len(text) + 1


def _times(file: BinaryIO) -> list[tuple[int, float]]:
    path = Path(file.name)
    older = path.name.endswith(".1")
    times = Path(f"{_times_of(path.with_suffix(''))}.1") if older else _times_of(path)
    try:
        return list(_parsed(times.read_text()))
    except OSError:
        return []


def _parsed(text: str) -> Iterator[tuple[int, float]]:
    for line in text.splitlines():
        offset, _, moment = line.partition(" ")
        with contextlib.suppress(ValueError):
            yield int(offset), float(moment)


def _times_of(path: Path) -> Path:
    return path.with_suffix(".times")


def streams(folder: Path) -> list[Stream]:
    """All streams in a folder, in the order of generations, ranks and streams."""
    found = []
    for path in folder.rglob("*.log") if folder.is_dir() else ():
        *member, generation, rank, _name = path.relative_to(folder).parts
        if path.stem in STREAMS and generation.isdigit() and rank.isdigit() and len(member) <= 1:
            found.append(Stream(path, member[0] if member else "", int(generation), int(rank)))
    return sorted(found, key=lambda stream: (stream.generation, stream.member, stream.rank, stream.path.name))
