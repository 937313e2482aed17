"""Records the training loss that the ranks of a local job print.

It writes `loss.jsonl` in the job's folder, which `outrider plot` draws. The loss of one rank makes a curve, that of all
ranks a smear. So only one rank is read: the lowest one that has printed a loss, until it prints none for a minute (in a
smaller world, another rank may be the one that prints). `line` runs for each line on the thread that hosts the job, so
it checks the rank and the clock before it searches a line, and searches few lines per second.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from outrider.cli.run.loss_parser import LONGEST, loss_in
from outrider.runtime.series import Series

SILENT = 60.0
"""Seconds without a loss after which another rank is read."""
SEARCHED = 100
"""The most lines that are searched per second; one takes 10 to 30 µs, the worst possible line 2 ms."""
RANK = re.compile(rb"\[(\d{1,7})\]: ")
Speaker = tuple[int, str]
"""A rank and its member; if lines do not name their rank, the number of the member instead of the rank."""


class LossRecord:
    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._series, self._clock = Series(folder / "loss.jsonl"), clock
        self._heard: tuple[Speaker, float] | None = None
        self.latest: float | None = None
        self._second, self._searched = 0, 0

    def line(self, member: str, line: bytes) -> None:
        """Record the loss in a line that a member has printed, if it has one."""
        if b"loss" not in line[-LONGEST:].lower():
            return
        speaker, now = _speaker(member, line), self._clock()
        if self._is_heard(speaker, now) and self._series.wants(now) and self._has_time(now):
            loss = loss_in(line[-LONGEST:].decode(errors="replace"))
            if loss is not None:
                self._heard, self.latest = (speaker, now), loss
                self._series.add(now, loss=loss, by=speaker[0])

    def _is_heard(self, speaker: Speaker, now: float) -> bool:
        if self._heard is None or speaker <= self._heard[0]:
            return True
        return abs(now - self._heard[1]) > SILENT + 2 * self._series.apart(now)

    def _has_time(self, now: float) -> bool:
        if int(now) != self._second:
            self._second, self._searched = int(now), 0
        self._searched += 1
        return self._searched <= SEARCHED

    def close(self) -> None:
        self._series.close()


def _speaker(member: str, line: bytes) -> Speaker:
    rank = RANK.match(line)
    number = member.rpartition("-")[2]
    return (int(rank.group(1)), "") if rank else (int(number) if number.isdigit() else 0, member)
