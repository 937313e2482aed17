"""The log lines of `outrider run`: one for each event that matters, and a summary at the end.

It logs generations, faults, remedies and what they cost. Only `outrider events` shows events that confirm that all is
well (a checkpoint was saved, one more member is ready), the rendezvous of each member, and errors caused by the end of
another rank: lines without news teach users not to read the others.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from outrider.cli.run.terminal import Screen
from outrider.cli.run.traceback_hold import Holding
from outrider.cli.text import event_line, event_style, local_time, percent, plural, printable, seconds

QUIET = frozenset(
    {
        "CheckpointReplicated",
        "CheckpointSaved",
        "MemberReady",
        "MemberCreated",
        "MemberSucceeded",
        "MemberGone",
        "GenerationRunning",
    }
)

ENDS = frozenset({"JobSucceeded", "JobFailed", "JobStopped", "Recovered"})
"""Kinds of events that --quiet logs too, beside warnings."""
AGAIN = timedelta(minutes=1)
"""The time after which the same line is logged again, so that the user sees that it still holds."""

NUMBERS = re.compile(r"\d+(?:\.\d+)?")


class Mode(enum.Enum):
    """How much is logged: only warnings, what matters to users, everything, or everything as JSON lines."""

    QUIET = "quiet"
    NORMAL = "normal"
    VERBOSE = "verbose"
    JSON = "json"


class EventLog:
    """Logs the events of one job on a screen."""

    def __init__(self, screen: Screen, mode: Mode = Mode.NORMAL, holding: Holding | None = None) -> None:
        self._screen = screen
        self._mode = mode
        self._holding = holding or Holding(lambda stream, line: None)
        self._generation = ""
        self._last_line = ("", "", datetime.min)
        self.last = 0
        """The number of the last event that was logged or left out."""

    def log(self, event: Mapping[str, Any]) -> None:
        """Log one event, unless it was logged already or does not matter in this mode."""
        if event["seq"] <= self.last:
            return
        self.last = event["seq"]
        if event["kind"] == "GenerationStarted":
            self._holding.event(event)
        if self._mode is Mode.JSON:
            self._screen.say(json.dumps(event))
        elif self._mode is Mode.VERBOSE:
            self._say(event, event_line(event) + "".join(f" {k}={v}" for k, v in _short(event["detail"])))
            self._traceback(event)
        elif event["kind"] == "GenerationStarted":
            self._generation_started(event)
        elif self._is_news(event):
            self._others(event)
            self._say(event, event_line(event))
            self._traceback(event)
        if event["kind"] != "GenerationStarted":
            self._holding.event(event)

    def _is_news(self, event: Mapping[str, Any]) -> bool:
        if self._mode is Mode.QUIET and event["severity"] != "warning" and event["kind"] not in ENDS:
            return False
        return event["kind"] not in QUIET and not self._holding.is_of_another(event) and not self._is_repeated(event)

    def _is_repeated(self, event: Mapping[str, Any]) -> bool:
        """Whether the last line was the same, within AGAIN. Repeated lines (a full disk, tried every second) would push
        all earlier ones off the screen."""
        last, now = self._last_line, datetime.fromisoformat(event["time"])
        if last[:2] == (event["generation"], event_line(event)) and now - last[2] < AGAIN:
            return True
        self._last_line = (event["generation"], event_line(event), now)
        return False

    def _generation_started(self, event: Mapping[str, Any]) -> None:
        """Log one line for all members of a generation."""
        if not event["detail"]:
            self._say(event, event_line(event))
            return
        if event["generation"] != self._generation:
            self._generation = event["generation"]
            self._others(event)
            if self._mode is not Mode.QUIET:
                self._say(event, f"generation {event['generation']}: {_world(event['detail'])}")

    def _others(self, event: Mapping[str, Any]) -> None:
        """Log one line for all ranks that ended because of another rank."""
        if count := self._holding.others():
            text = f"{plural(count, 'other rank')} ended because of it or in the same way; see `outrider logs`"
            self._say(event, text)

    def _traceback(self, event: Mapping[str, Any]) -> None:
        """Print the traceback of the error that ends the job, unless it was shown when it happened."""
        if not self._holding.shown_of(event["generation"]):
            for line in event["detail"].get("traceback", "").splitlines():
                self._screen.say(line)

    def _say(self, event: Mapping[str, Any], text: str) -> None:
        self._screen.say(f"outrider {local_time(event['time'])} {text}", event_style(event))


def _short(detail: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((key, value) for key, value in detail.items() if key != "traceback")


def _world(rendezvous: Mapping[str, str]) -> str:
    members = int(rendezvous["group_world_size"])
    ranks = int(rendezvous["world_size"])
    where = f"{rendezvous['master_addr']}:{rendezvous['master_port']}"
    return f"{plural(members, 'member')}, {plural(ranks, 'rank')}, rendezvous at {where}"


def summary(status: Mapping[str, Any], elapsed: float, report: Path | None = None) -> Iterator[str]:
    """The summary of a job: steps, faults and the time that each cost, goodput, and where its report is."""
    faults = status["faults"]
    repeated = status.get("steps_repeated")
    twice = f" ({repeated:,} repeated)" if repeated else ""
    about = "about " if status.get("step_estimated") else ""
    yield (
        f"{status['job']} {status['phase']} after {seconds(elapsed)}: {about}{plural(status['step'], 'step')}{twice}, "
        f"{plural(status['restarts'] + 1, 'generation')}, {plural(len(faults), 'fault')}, "
        f"goodput {percent(status.get('goodput'))}"
    )
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for fault in faults:
        alike.setdefault(NUMBERS.sub("#", fault["reason"]), []).append(fault)
    for group in alike.values():
        is_same = len({fault["reason"] for fault in group}) == 1
        times = f"{len(group)} ×{'' if is_same else ', first'} " if len(group) > 1 else ""
        yield f"  {local_time(group[0]['time'])} {_lost(group):>14}: {times}{printable(group[0]['reason'])}"
    if len(alike) > 1:
        known = seconds(sum(fault["seconds_lost"] or 0.0 for fault in faults))
        since = "; no step since the last fault" if faults[-1]["seconds_lost"] is None else ""
        yield f"  {'':8} {known + ' lost':>14} in total{since}"
    if report is not None:
        yield f"  report: {report}"


def summary_line(status: Mapping[str, Any], elapsed: float, report: Path | None = None) -> str:
    """The summary of a job as one JSON object."""
    faults = status["faults"]
    return json.dumps(
        {
            "kind": "Summary",
            "job": status["job"],
            "phase": status["phase"],
            "seconds": round(elapsed, 3),
            "steps": status["step"],
            "steps_estimated": bool(status.get("step_estimated")),
            "steps_repeated": status.get("steps_repeated") or 0,
            "generations": status["restarts"] + 1,
            "faults": len(faults),
            "seconds_lost": round(sum(fault["seconds_lost"] or 0.0 for fault in faults), 3),
            "goodput": status.get("goodput"),
            "report": None if report is None else str(report),
        }
    )


def _lost(faults: Sequence[Mapping[str, Any]]) -> str:
    if any(fault["seconds_lost"] is None for fault in faults):
        return "no step since"
    return f"{seconds(sum(fault['seconds_lost'] for fault in faults))} lost"
