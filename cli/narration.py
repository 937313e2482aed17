"""What `outrider run` says while a job runs: each event as it comes, and a summary at the end.

Told are generations with their rendezvous lines, faults, remedies and what they cost. What only confirms that all is
well (a checkpoint was saved, one more member is ready) is left to `outrider events`: a line that means nothing teaches
people not to read the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from cli.screen import Screen
from cli.wording import event_line, event_style, local_time, percent, plural, seconds

QUIET = frozenset(
    {"CheckpointKept", "CheckpointSaved", "MemberReady", "MemberCreated", "MemberDone", "MemberGone", "WorldRuns"}
)

AGAIN = timedelta(minutes=1)
"""After that the same line is told once more: whoever looks now should see that it is still so."""


class Narrator:
    """Tells the events of one job on a screen."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._generation = ""
        self._said = ("", "", datetime.min)
        self.last = 0
        """The number of the last event that was told or left out."""

    def tell(self, event: Mapping[str, Any]) -> None:
        """One event, once; what was told already is passed over."""
        if event["seq"] <= self.last:
            return
        self.last = event["seq"]
        if event["kind"] == "GenerationStarted":
            self._generation_started(event)
        elif event["kind"] not in QUIET and not self._is_said_again(event):
            self._say(event, event_line(event))
            self._traceback(event)

    def _is_said_again(self, event: Mapping[str, Any]) -> bool:
        """The same line at once again (a full disk, tried every second) would bury what was said before it."""
        told, now = self._said, datetime.fromisoformat(event["time"])
        if told[:2] == (event["generation"], event_line(event)) and now - told[2] < AGAIN:
            return True
        self._said = (event["generation"], event_line(event), now)
        return False

    def _generation_started(self, event: Mapping[str, Any]) -> None:
        """A headline for the generation, then one rendezvous line for each of its members."""
        if not event["detail"]:
            self._say(event, event_line(event))
            return
        if event["generation"] != self._generation:
            self._generation = event["generation"]
            self._say(event, f"generation {event['generation']}: {_world(event['detail'])}")
        fields = " ".join(f"{name}={value}" for name, value in event["detail"].items())
        self._say(event, f"  {event['member']}: {fields}")

    def _traceback(self, event: Mapping[str, Any]) -> None:
        for line in event["detail"].get("traceback", "").splitlines():
            self._screen.say(line)

    def _say(self, event: Mapping[str, Any], text: str) -> None:
        self._screen.say(f"outrider {local_time(event['time'])} {text}", event_style(event))


def _world(rendezvous: Mapping[str, str]) -> str:
    members = int(rendezvous["group_world_size"])
    ranks = int(rendezvous["world_size"])
    where = f"{rendezvous['master_addr']}:{rendezvous['master_port']}"
    return f"{plural(members, 'member')}, {plural(ranks, 'rank')}, rendezvous at {where}"


def progress_line(status: Mapping[str, Any]) -> str:
    """A running job on one line."""
    faults = status["faults"]
    lost = sum(fault["seconds_lost"] or 0.0 for fault in faults)
    parts = [
        f"{status['job']} {status['phase']}",
        f"step {status['step']:,}",
        *_size(status),
    ]
    if faults:
        parts.append(f"{plural(len(faults), 'fault')}, {seconds(lost)} lost")
    if status.get("goodput") is not None:
        parts.append(f"goodput {percent(status['goodput'])}")
    return " · ".join(parts)


def _size(status: Mapping[str, Any]) -> list[str]:
    """Each member of a PS job has generations of its own."""
    if seats := status.get("seats"):
        return [f"{status['world']} of {plural(len(seats), 'member')}"]
    return [f"world {status['world']}", f"generation {status['generation']}"]


def summary(status: Mapping[str, Any], elapsed: float) -> Iterator[str]:
    """How it went: steps, faults and what each cost, goodput."""
    faults = status["faults"]
    yield (
        f"{status['job']} {status['phase']} after {seconds(elapsed)}: {plural(status['step'], 'step')}, "
        f"{plural(status['restarts'] + 1, 'generation')}, {plural(len(faults), 'fault')}, "
        f"goodput {percent(status.get('goodput'))}"
    )
    for fault in faults:
        lost = "no step since" if fault["seconds_lost"] is None else f"{seconds(fault['seconds_lost'])} lost"
        yield f"  {local_time(fault['time'])} {lost:>14}: {fault['reason']}"
    if len(faults) > 1:
        total = sum(fault["seconds_lost"] or 0.0 for fault in faults)
        yield f"  {'':8} {seconds(total) + ' lost':>14} in all"
