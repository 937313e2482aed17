"""Holds the tracebacks of ranks back until the master has named the culprit.

When one rank dies, the others fail in their collectives a moment later, and each writes a traceback without any news.
The master names the culprit within a second. So the standard error of a rank, from `Traceback (most recent call last):`
on, waits for this event: the culprit's traceback is shown, those of other ranks stay in the files that `outrider logs`
shows. A traceback without such an event is shown after PATIENCE seconds.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

PATIENCE = 3.0
MOST_BYTES = 256 * 1024
"""The most bytes that are held per rank; a longer traceback is shown at once."""
STDERR = 2
PREFIX = re.compile(rb"\[(\d+)\]: ")
BEGIN = b"Traceback (most recent call last):"
LIKE_EFFECT = re.compile(r"connection (closed|reset|refused)|broken pipe|timed? ?out|NCCL|gloo", re.IGNORECASE)
"""Errors that may turn out to be an effect of another rank's end: the traceback waits for the next event."""
RANK = re.compile(r"^Rank (\d+) ")
EFFECT = ", as an effect of the first failure."
"""The end of the master's reason (`outrider.master.core.faults.recovery`) for a rank that failed because of another."""
TOO = ", at the same moment."


@dataclass(slots=True)
class Held:
    """The lines of one rank since its traceback began: `since` by the monotonic clock, `at` by the wall clock."""

    since: float
    at: float
    lines: list[bytes] = field(default_factory=list)
    size: int = 0


class Holding:
    """Decides which tracebacks are shown. The reader of the ranks' output calls `line`, the log of events calls `event`
    and `look`."""

    def __init__(self, show: Callable[[int, bytes], None]) -> None:
        self._show = show
        self._held: dict[int, Held] = {}
        self._generation = ""
        self._lock = threading.Lock()
        self._culprit: tuple[str, str] | None = None
        """The generation and the error of the last culprit."""
        self._doubtful: int | None = None
        """The rank of the culprit, if its error may be an effect of another rank's that is not known yet."""
        self._others: set[int] = set()
        self._free: set[int] = set()
        self._silent: set[int] = set()
        """Ranks of the current generation whose tracebacks are shown (`_free`) or not shown (`_silent`)."""

    def line(self, stream: int, line: bytes) -> None:
        prefix = PREFIX.match(line) if stream == STDERR else None
        if prefix is None:
            self._show(stream, line)
            return
        rank = int(prefix[1])
        with self._lock:
            held = self._held.get(rank)
            if held is None and BEGIN in line and rank not in self._free:
                held = self._held[rank] = Held(time.monotonic(), time.time())
            if held is not None:
                held.lines.append(line)
                held.size += len(line)
                if rank in self._silent:
                    held.lines.clear()
                elif held.size > MOST_BYTES:
                    self._release(rank)
                return
        self._show(stream, line)

    def event(self, event: Mapping[str, Any]) -> None:
        """Decide by an event of the master which tracebacks are shown."""
        rank = RANK.match(str(event["reason"]))
        with self._lock:
            if event["kind"] == "WorkerExited" and rank is not None:
                if is_of_another(event, self._culprit):
                    self._others.add(int(rank[1]))
                    self._silent.add(int(rank[1]))
                    self._held.pop(int(rank[1]), None)
                else:
                    self._blame(event, int(rank[1]))
            elif event["kind"] == "GenerationStarted" and event["generation"] != self._generation:
                self._generation = event["generation"]
                self._next_generation(datetime.fromisoformat(event["time"]).timestamp())

    def _next_generation(self, began: float) -> None:
        """Drop the tracebacks of the last generation if the reason for its end is known."""
        self._settle()
        ended = self._held if self._culprit is not None else self._held.keys() & self._silent
        self._drop([rank for rank in ended if self._held[rank].at < began])
        self._culprit = None
        self._free.clear()
        self._silent.clear()

    def _blame(self, event: Mapping[str, Any], rank: int) -> None:
        if self._doubtful is not None and self._culprit is not None and self._culprit[0] == event["generation"]:
            self._drop([self._doubtful] if self._doubtful in self._held else [])
        self._culprit, self._doubtful = (event["generation"], error_of(event)), None
        if LIKE_EFFECT.search(str(event["reason"])):
            self._doubtful = rank
        else:
            self._free.add(rank)
            self._release(rank)

    def _settle(self) -> None:
        if self._doubtful is not None:
            self._free.add(self._doubtful)
            self._release(self._doubtful)
            self._doubtful = None

    def is_of_another(self, event: Mapping[str, Any]) -> bool:
        with self._lock:
            return is_of_another(event, self._culprit)

    def shown_of(self, generation: str) -> bool:
        """Whether the culprit of this generation is known, so that its traceback was shown."""
        return self._culprit is not None and self._culprit[0] == generation

    def others(self) -> int:
        """How many ranks have ended because of another one since the last call."""
        with self._lock:
            count = len(self._others)
            self._others.clear()
            return count

    def look(self) -> None:
        """Show tracebacks that have waited too long."""
        late = time.monotonic() - PATIENCE
        with self._lock:
            for rank in [number for number, held in self._held.items() if held.since <= late]:
                if rank not in self._silent:
                    self._release(rank)

    def close(self) -> None:
        """At the end of the job: drop the other tracebacks if there is a culprit, else show all."""
        with self._lock:
            self._settle()
            if self._culprit is not None:
                self._drop(list(self._held))
            for rank in list(self._held):
                self._release(rank)

    def _release(self, rank: int) -> None:
        held = self._held.pop(rank, None)
        for line in held.lines if held is not None else ():
            self._show(STDERR, line)

    def _drop(self, ranks: list[int]) -> None:
        for rank in ranks:
            self._others.add(rank)
            del self._held[rank]


def error_of(event: Mapping[str, Any]) -> str:
    """How the rank ended, from the master's reason without the name of the rank."""
    return RANK.sub("", str(event["reason"]).removesuffix(TOO).rstrip(".")).partition(" ")[2].partition(" ")[2]


def is_of_another(event: Mapping[str, Any], culprit: tuple[str, str] | None) -> bool:
    """Whether a rank ended because of another one, or with the same error at the same moment."""
    if event["kind"] != "WorkerExited":
        return False
    reason = str(event["reason"])
    if reason.endswith(EFFECT):
        return True
    return reason.endswith(TOO) and culprit == (event["generation"], error_of(event))
