"""What `outrider run` says while a job runs: each event as it comes, and a summary at the end.

Told are generations, faults, remedies and what they cost. What only confirms that all is well (a checkpoint was saved,
one more member is ready), where each member meets the others, and the errors that another rank's end has brought about
are left to `outrider events`: a line that means nothing teaches people not to read the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from cli.screen import Screen
from cli.wording import event_line, event_style, local_time, percent, plural, seconds

QUIET = frozenset(
    {"CheckpointKept", "CheckpointSaved", "MemberReady", "MemberCreated", "MemberDone", "MemberGone", "WorldRuns"}
)

EFFECT = ": an effect of it."
"""The master's words (`recovery`) for a rank that failed because another one had."""
AGAIN = timedelta(minutes=1)
"""After that the same line is told once more: whoever looks now should see that it is still so."""

NUMBERS = re.compile(r"\d+(?:\.\d+)?")


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
        elif event["kind"] not in QUIET and not _is_effect(event) and not self._is_said_again(event):
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
        """One line for all of its members."""
        if not event["detail"]:
            self._say(event, event_line(event))
            return
        if event["generation"] != self._generation:
            self._generation = event["generation"]
            self._say(event, f"generation {event['generation']}: {_world(event['detail'])}")

    def _traceback(self, event: Mapping[str, Any]) -> None:
        for line in event["detail"].get("traceback", "").splitlines():
            self._screen.say(line)

    def _say(self, event: Mapping[str, Any], text: str) -> None:
        self._screen.say(f"outrider {local_time(event['time'])} {text}", event_style(event))


def _is_effect(event: Mapping[str, Any]) -> bool:
    return event["kind"] == "WorkerExited" and str(event["reason"]).endswith(EFFECT)


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
    repeated = status.get("steps_repeated")
    twice = f" ({repeated:,} of them made twice)" if repeated else ""
    yield (
        f"{status['job']} {status['phase']} after {seconds(elapsed)}: {plural(status['step'], 'step')}{twice}, "
        f"{plural(status['restarts'] + 1, 'generation')}, {plural(len(faults), 'fault')}, "
        f"goodput {percent(status.get('goodput'))}"
    )
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for fault in faults:
        alike.setdefault(NUMBERS.sub("#", fault["reason"]), []).append(fault)
    for group in alike.values():
        times = f"{len(group)} × " if len(group) > 1 else ""
        yield f"  {local_time(group[0]['time'])} {_lost(group):>14}: {times}{group[0]['reason']}"
    if len(alike) > 1:
        known = seconds(sum(fault["seconds_lost"] or 0.0 for fault in faults))
        since = ", and no step since the last one" if faults[-1]["seconds_lost"] is None else ""
        yield f"  {'':8} {known + ' lost':>14} in all{since}"


def _lost(faults: Sequence[Mapping[str, Any]]) -> str:
    if any(fault["seconds_lost"] is None for fault in faults):
        return "no step since"
    return f"{seconds(sum(fault['seconds_lost'] for fault in faults))} lost"
