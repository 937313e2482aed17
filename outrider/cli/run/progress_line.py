"""The progress line of a running job, and what a job without a step is waiting for."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from outrider.cli.text import plural

RATE_OVER = 15.0
"""Seconds over which steps per second are measured."""
SAVED_AT = re.compile(r" at step (\d+)")
FIRST_WORDS = (10.0, 30.0, 60.0)
WORDS_EVERY = 60.0
"""Seconds after which a command without a terminal logs what the job is waiting for, until the first step: the first
three times, and the interval after them."""


class Progress:
    """Makes the progress line from status documents as they come; `loss()` is the newest known loss."""

    def __init__(self, loss: Callable[[], float | None] = lambda: None) -> None:
        self._loss = loss
        self._steps: deque[tuple[float, int]] = deque()
        self._saved: int | None = None
        self._logged = 0

    def event(self, event: Mapping[str, Any]) -> None:
        if event["kind"] == "CheckpointSaved" and (step := SAVED_AT.search(str(event["reason"]))):
            self._saved = int(step[1])

    def line(self, status: Mapping[str, Any], elapsed: float, now: datetime) -> str:
        """`digits · step 1,240, 11.2/s · loss 2.37 · 2 ranks · …`, or what the job is waiting for."""
        self._count(elapsed, status["step"])
        if (waits := waits_for(status)) and not self._steps[-1][1]:
            return f"{status['job']} · {waits} · {clock(elapsed)}"
        return " · ".join([status["job"], *self._parts(status, now), clock(elapsed)])

    def words(self, status: Mapping[str, Any], elapsed: float) -> str:
        """What the job is waiting for, at growing intervals; "" in between and after the first step."""
        waits = waits_for(status)
        due = FIRST_WORDS[self._logged] if self._logged < len(FIRST_WORDS) else self._logged * WORDS_EVERY - 60.0
        if status["step"] or not waits or elapsed < due:
            return ""
        self._logged += 1
        return f"{waits}, {elapsed:.0f} s so far"

    def _parts(self, status: Mapping[str, Any], now: datetime) -> Iterator[str]:
        if status["phase"] != "running":
            yield status["phase"]
        rate = self._rate()
        yield f"step {status['step']:,}" + (f", {rate:.3g}/s" if rate else "")
        if (loss := self._loss()) is not None:
            yield f"loss {loss:.4g}"
        yield size(status)
        if self._saved is not None and status["step"] >= self._saved:
            yield f"checkpoint {plural(status['step'] - self._saved, 'step')} ago"
        if faults := status["faults"]:
            yield f"{plural(len(faults), 'fault')}, {_lost(faults, now)}"

    def _count(self, elapsed: float, step: int) -> None:
        if self._steps and step < self._steps[-1][1]:
            self._steps.clear()
        self._steps.append((elapsed, step))
        while self._steps[0][0] < elapsed - RATE_OVER or (len(self._steps) > 1 and not self._steps[1][1]):
            self._steps.popleft()

    def _rate(self) -> float:
        (since, first), (until, last) = self._steps[0], self._steps[-1]
        return (last - first) / (until - since) if until > since else 0.0


def waits_for(status: Mapping[str, Any]) -> str:
    """Why no step has been made yet, as far as the states of the members show it."""
    if status["step"] or status["phase"] not in ("pending", "running", "restarting"):
        return ""
    members = [member for member in status["members"] if member.get("rank_index") is not None]
    importing = sum(member["state"] == "starting" for member in members)
    checking = sum(member["state"] == "checking" for member in members)
    if importing:
        return f"importing the script's modules ({importing} of {plural(len(members), 'member')})"
    if checking:
        return f"running the node check ({checking} of {plural(len(members), 'member')})"
    if status["phase"] == "running":
        return f"{size(status)}, no step yet"
    if status["phase"] == "restarting":
        return ""
    return str(status.get("message") or "waiting for members").rstrip(".")


def size(status: Mapping[str, Any]) -> str:
    """The ranks and the generation; for a PS job, whose members have separate generations, the running members."""
    if seats := status.get("seats"):
        return f"{status['world']} of {plural(len(seats), 'member')}"
    return f"{plural(status['world'], 'rank')}, generation {status['generation']}"


def _lost(faults: list[Mapping[str, Any]], now: datetime) -> str:
    """The time that the faults have cost, or, while training has not resumed, the time since the last one."""
    if faults[-1]["seconds_lost"] is None:
        since = (now - datetime.fromisoformat(faults[-1]["time"])).total_seconds()
        return f"no new step for {clock(max(0.0, since))}"
    return f"{clock(sum(fault['seconds_lost'] or 0.0 for fault in faults))} lost"


def clock(value: float) -> str:
    """`4 s`, `3 m 05 s`, `1 h 02 m`."""
    if value < 10:
        return f"{value:.1f} s" if value % 1 and value < 1 else f"{value:.0f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} m"
    return f"{minutes} m {rest:02} s" if minutes else f"{rest} s"
