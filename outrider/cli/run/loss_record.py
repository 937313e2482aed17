"""Writes down the training loss that the ranks of a local job print, with the time at which it came. It is `loss.jsonl`
in the job's folder, for `outrider plot`.

One rank's loss makes a curve, all ranks' a smear. So one is listened to: the lowest that has said a loss, until it says
none for a minute (in a smaller world, the last rank that used to print is another one). This is called for each line on
the node's own thread, and so looks at who speaks and at the clock before it searches a line, and searches few a second.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from outrider.cli.run.loss_parser import LONGEST, loss_in
from outrider.runtime.series import Series

SILENT = 60.0
"""Seconds after which another one is listened to."""
SEARCHED = 100
"""Lines a second, at the most: one takes 10 to 30 µs, the worst that a script can print 2 ms."""
RANK = re.compile(rb"\[(\d{1,7})\]: ")
Speaker = tuple[int, str]
"""A rank, or where a member's ranks are not told apart its number; and the member."""


class LossRecord:
    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._series, self._clock = Series(folder / "loss.jsonl"), clock
        self._heard: tuple[Speaker, float] | None = None
        self.latest: float | None = None
        self._second, self._searched = 0, 0

    def line(self, member: str, line: bytes) -> None:
        """Whatever a member has printed."""
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
