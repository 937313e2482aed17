"""A series of moments in a file of JSON lines, which gets sparser as it gets older. What is drawn needs no more.

Two moments lie at least `age / DENSITY` apart, the age being that of the series. So a minute has 2,000 lines at the
most, and each tenfold age 4,600 more: a month of training fits in about 2 MB, and nothing is ever rewritten. A disk
that takes no line loses that line and nothing else: nobody may fail for want of a picture.
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
    """Who continues a file (the next master of a job) goes on with its age."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._began: float | None = None
        self._last = float("-inf")

    def wants(self, now: float) -> bool:
        """Whether a moment at `now` (seconds, Unix time) would be written. A clock that was set back begins anew."""
        return self._began is None or abs(now - self._last) >= self.apart(now)

    def apart(self, now: float) -> float:
        """Seconds that have to lie between two of them now."""
        return 0.0 if self._began is None else abs(now - self._began) / DENSITY

    def add(self, now: float, **values: object) -> None:
        """Writes it where it is wanted."""
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
            os.write(self._descriptor, b"\n")  # behind what a killed writer left half written

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def moments(path: Path) -> Iterator[dict[str, Any]]:
    """What was written so far, without what is no whole moment. None where there is no file that can be read."""
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
