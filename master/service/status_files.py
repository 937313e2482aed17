"""A local job's files for users: `status.json` and `history-<term>.json`, replaced as a whole, and `events.jsonl`.

Both outlive the master: the next master takes its state from the first, and continues the numbers of the second. If a
killed master left a line half written, the next one starts a new line. Events that do not fit on a full disk are kept
in memory and written when there is room; followers get them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

EVENTS_KEPT = 10_000
MOST_UNWRITTEN = 4 << 20
"""Most bytes of events that wait for room on the disk; further ones are not written."""

Line = dict[str, Any]


class Records:
    """The files of one job; `follow` yields the events as they come."""

    def __init__(self, folder: Path) -> None:
        self._status = folder / "status.json"
        self._path = folder / "events.jsonl"
        self._events: deque[Line] = deque(_read_lines(self._path), maxlen=EVENTS_KEPT)
        self._seq = self._events[-1]["seq"] if self._events else 0
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._unwritten = bytearray(b"\n" if _ends_inside_a_line(self._path) else b"")
        self._news = asyncio.Event()
        self._closed = False

    # -- status -----------------------------------------------------------------------------------------------------
    def saved_status(self) -> dict[str, object] | None:
        """The status that an earlier master of this run left; None if none can be read."""
        try:
            found = json.loads(self._status.read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def save_status(self, status: Mapping[str, object]) -> None:
        beside = self._status.with_name("status.json.new")
        beside.write_text(json.dumps(status, separators=(",", ":")) + "\n")
        beside.replace(self._status)

    def save_history(self, part: Mapping[str, object]) -> None:
        """Writes `history-<term>.json`; one that cannot be written is missing from the report, nothing else."""
        part = {**part, "host": socket.gethostname()}
        path = self._status.with_name(f"history-{part['term']}.json")
        beside = path.with_name(f"{path.name}.new")
        with contextlib.suppress(OSError):
            beside.write_text(json.dumps(part, separators=(",", ":")) + "\n")
            beside.replace(path)

    # -- events -----------------------------------------------------------------------------------------------------
    def add(self, kind: str, reason: str, severity: str, member: str | None, generation: str, detail: Line) -> None:
        self._seq += 1
        line: Line = {
            "seq": self._seq,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "kind": kind,
            "severity": severity,
            "member": member,
            "generation": generation,
            "reason": reason,
            "detail": detail,
        }
        self._events.append(line)
        if len(self._unwritten) < MOST_UNWRITTEN:
            self._unwritten += json.dumps(line).encode() + b"\n"
        self._write()
        self._notify()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while self._unwritten:
                del self._unwritten[: os.write(self._file, self._unwritten)]

    def after(self, seq: int) -> list[Line]:
        return [line for line in self._events if line["seq"] > seq]

    async def follow(self, seq: int) -> AsyncIterator[Line]:
        """Yields the events after `seq`, until the records are closed."""
        while True:
            news, closed = self._news, self._closed
            for line in self.after(seq):
                seq = line["seq"]
                yield line
            if closed:
                return
            await news.wait()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._write()
            os.close(self._file)
            self._notify()

    def _notify(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _read_lines(path: Path) -> list[Line]:
    try:
        raw = path.read_bytes().splitlines()
    except OSError:
        return []
    lines = []
    for text in raw:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("seq"), int):
            lines.append(line)
    return lines


def _ends_inside_a_line(path: Path) -> bool:
    return path.read_bytes()[-1:] not in (b"", b"\n")
