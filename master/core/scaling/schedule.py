"""The size of a job by its schedule: that of the entry that was due last. Time is an argument.

An entry is a cron expression with five fields. `cronsim` reads it as Debian's cron does, including changes to and from
summer time; Python reads time zones from the system's files, or from those of `tzdata`. `cronsim` is imported only if
there is a schedule, because every command of the CLI imports this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from outrider.master.core.spec import Entry

FIELDS = 5
SOON = 1e-3
"""Seconds by which a timer may fire early, as a float is not exact."""


class Due(NamedTuple):
    """The entry that was due last, and the next one.

    `at` and `next_at` are Unix times; None if there is none in the last or next 50 years.
    """

    members: int | None
    cron: str
    at: float | None
    next_at: float | None
    next_members: int | None


def due(schedule: tuple[Entry, ...], zone: str, unix_time: float) -> Due:
    """The entries around this time; of entries that are due at the same moment the last one counts."""
    now = datetime.fromtimestamp(unix_time + SOON, UTC).astimezone(ZoneInfo(zone))
    past = [(at, number) for number, entry in enumerate(schedule) for at in _moment(entry.cron, now, reverse=True)]
    coming = [(at, -number) for number, entry in enumerate(schedule) for at in _moment(entry.cron, now)]
    at, number = max(past, default=(None, 0))
    next_at, following = min(coming, default=(None, 0))
    return Due(
        None if at is None else schedule[number].members,
        "" if at is None else schedule[number].cron,
        at,
        next_at,
        None if next_at is None else schedule[-following].members,
    )


def _moment(cron: str, now: datetime, *, reverse: bool = False) -> Iterator[float]:
    from cronsim import CronSim

    found = next(CronSim(cron, now, reverse=reverse), None)
    if found is not None:
        yield found.timestamp()


def problem(cron: str) -> str:
    """Why the text is not a valid cron expression; empty if it is one."""
    if len(cron.split()) != FIELDS:
        return "it must have five fields: minute, hour, day of the month, month, day of the week"
    from cronsim import CronSim, CronSimError

    try:
        CronSim(cron, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, ValueError, AssertionError) as error:
        return str(error) or "it cannot be read"
    return ""


def is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True
