"""A time series in a file of JSON lines that gets sparser as it gets older.

It stays dense enough for a picture. Two records are at least `age / DENSITY` apart, where age is that of the series. So
a minute has at most 2,000 lines, and each tenfold age 4,600 more: a month of training fits in about 2 MB, and nothing
is ever rewritten. If the disk refuses a line, only that line is lost: no job may fail because of a picture.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DENSITY = 2000


class Series:
    """A writer of a time series. The next master of a job continues the file with its age."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._began: float | None = None
        self._last = float("-inf")

    def wants(self, now: float) -> bool:
        """Whether a record at `now` (seconds, Unix time) would be written, also after the clock was set back."""
        return self._began is None or abs(now - self._last) >= self.apart(now)

    def apart(self, now: float) -> float:
        """The least number of seconds between two records at this age."""
        return 0.0 if self._began is None else abs(now - self._began) / DENSITY

    def add(self, now: float, **values: object) -> None:
        """Write a record, if it is far enough from the last one."""
        with contextlib.suppress(OSError):
            if self._descriptor < 0:
                self._open(now)
            if self.wants(now):
                self._last = now
                self._began = now if self._began is None else self._began
                os.write(self._descriptor, json.dumps({"time": round(now, 3), **values}).encode() + b"\n")

    def _open(self, now: float) -> None:
        earlier = next(moments(self._path), None)
        self._began = float(earlier["time"]) if earlier else None
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if earlier:
            os.write(self._descriptor, b"\n")  # after a line that a killed writer left unfinished

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def moments(path: Path) -> Iterator[dict[str, Any]]:
    """The complete records of a file; nothing if the file cannot be read."""
    try:
        with path.open("rb") as file:
            for line in file:
                if (moment := _moment(line)) is not None:
                    yield moment
    except OSError:
        return


def _moment(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("time"), int | float) else None
