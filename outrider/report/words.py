"""The words of the report: causes, stages, numbers and durations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

LATEST: Final = 253_000_000_000.0
"""A Unix time in the year 9987."""
PRODUCTIVE, UNKNOWN = "productive", "unknown"
CAUSES: Final = {
    "productive": "new steps",
    "starting": "pods and processes started",
    "importing": "the interpreter imported modules",
    "rendezvous": "init_process_group ran",
    "loading": "a checkpoint was loaded",
    "first_step": "all else before the end of the first step",
    "repeated_steps": "steps were made again, or cut short",
    "checkpoint_stall": "a save held up the main thread",
    "data_wait": "the main thread waited for a batch",
    "evaluation": "the script evaluated",
    "hang": "the generation hung",
    "detecting": "a fault had happened and was not known",
    "stopping": "processes ended",
    "waiting": "waited for room, a replacement or other members",
    "slow_member": "a slow member held up the others",
    "suspended": "the job was suspended",
    "unknown": "no master watched",
}
"""Every cause of the time account with what a member did (docs/concepts/time.md)."""
STAGES: Final = {
    "detect": "until the fault was noticed",
    "stop": "until all ranks had stopped",
    "wait": "until all members were ready",
    "agree": "to decide the next generation",
    "start": "to start its processes",
    "import": "to import modules",
    "rendezvous": "for the rendezvous",
    "load": "to load the checkpoint",
    "first_step": "up to the end of the first step",
    "new_step": "for repeated steps",
}
"""Every stage of a recovery with what it took its time for."""


def seconds(value: float) -> str:
    """`0.214 s`, `7.1 s`, `41.0 s`, `3 min 05 s`, `5 h 34 min`, `3 d 04 h`."""
    value = max(0.0, value)
    if value < 59.95:
        return f"{value:.1f} s" if value >= 0.9995 else f"{value:.3f} s" if value >= 0.0005 else "0 s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(round(value / 60), 60)
    if hours < 48:
        return f"{hours} h {minutes:02} min"
    days, hours = divmod(round(value / 3600), 24)
    return f"{days:,} d {hours:02} h"


def percent(share: float) -> str:
    """`12 %`, `0.4 %`, `96.2 %`."""
    return f"{100 * share:.1f} %" if share >= 0.0005 else "< 0.1 %" if share > 0 else "0 %"


def counted(count: int, noun: str) -> str:
    """`1 fault`, `1,200 steps`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def utc(at: float) -> str:
    """`2026-11-21 03:00:00 UTC`."""
    return _date(at).strftime("%Y-%m-%d %H:%M:%S UTC")


def rfc3339(at: float) -> str:
    return _date(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _date(at: float) -> datetime:
    """The date of a Unix time, or the nearest that there is."""
    return datetime.fromtimestamp(min(max(at, 0.0), LATEST), UTC)
