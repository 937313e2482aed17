"""Formats values and events for a terminal, in one place, so that all commands print them alike."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

STYLES = {
    "starting": "cyan",
    "checking": "cyan",
    "ready": "cyan",
    "running": "green",
    "stopping": "yellow",
    "restarting": "yellow",
    "pending": "yellow",
    "spare": "blue",
    "silent": "bold yellow",
    "lost": "bold red",
    "failed": "bold red",
    "replaced": "dim",
    "gone": "dim",
    "stopped": "yellow",
    "succeeded": "bold green",
    "done": "green",
}
"""Colours of the phases of jobs and of the states of members."""
OVER = ("succeeded", "failed", "stopped")
"""The phases of a job that has ended."""


def seconds(value: float | None) -> str:
    """A duration as `0.21 s` or `3 m 05 s`; `-` if it is not known (yet)."""
    if value is None:
        return "-"
    if value < 60:
        return f"{value:.2f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} m {rest:02} s" if hours else f"{minutes} m {rest:02} s"


def percent(value: float | None) -> str:
    """A share as `96.2 %`."""
    return "-" if value is None else f"{100 * value:.1f} %"


def time_account(document: Mapping[str, Any], most: int = 5) -> str:
    """The greatest causes of a job's time account, new steps first: `productive 61.6 %, importing 21.4 %`."""
    spent = document.get("time") or {}
    total = sum(spent.values())
    rows = sorted(((cause != "productive", -took / total, cause) for cause, took in spent.items() if took > 0))
    return ", ".join(f"{cause} {percent(-share)}" for _, share, cause in rows[:most] if -share >= 0.01)


def outcome(status: Mapping[str, Any]) -> str:
    """What a job does or how it ended: `digits is running`, `digits has failed with exit code 1`."""
    phase, code = printable(status.get("phase")), status.get("exit_code")
    verb = "was" if phase == "stopped" else "has" if phase in OVER else "is"
    return f"{printable(status.get('job'))} {verb} {phase}{f' with exit code {code}' if isinstance(code, int) else ''}"


def sentence(status: Mapping[str, Any]) -> str:
    """The job in one sentence."""
    parts = [outcome(status)]
    if status.get("generation"):
        parts.append(f"generation {printable(status['generation'])}")
    if isinstance(world := status.get("world"), int):
        parts.append(plural(world, "rank"))
    parts.append(f"step {'about ' if status.get('step_estimated') else ''}{_number(status.get('step')):,.0f}")
    parts.append(plural(int(_number(status.get("restarts"))), "restart"))
    shares = (("goodput", "goodput"), ("last hour", "goodput_1h"), ("last day", "goodput_1d"))
    parts += [f"{name} {percent(_number(share))}" for name, field in shares if (share := status.get(field)) is not None]
    if (mtbf := status.get("mtbf_seconds")) is not None:
        parts.append(f"{seconds(_number(mtbf))} between faults")
    return ", ".join(parts)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def printable(text: object) -> str:
    """A text on one line without characters that a terminal would obey, such as escape sequences: each becomes `�`."""
    return "".join(each if each.isprintable() else " " if each in "\t\n\r" else "\ufffd" for each in str(text))


def plural(count: int, noun: str, many: str = "") -> str:
    """`1 fault`, `2 faults`, `1,200 steps`, `2 processes`."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def local_time(stamp: object) -> str:
    """The local time of an RFC 3339 timestamp."""
    try:
        return datetime.datetime.fromisoformat(str(stamp)).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return str(stamp)


def event_line(event: Mapping[str, Any]) -> str:
    """An event as one line without its time. The member is named once: before the reason, unless that names it."""
    reason = printable(event.get("reason", ""))
    member = event.get("member")
    named = f" {member}" if member and member not in reason else ""
    return f"{event.get('kind', '?')}{named}: {reason}"


FAULTS = frozenset({
    "WorkerExited", "WorkersGone", "TrainerLost", "MemberLost", "MemberSilent", "MemberFailed", "HangDetected",
    "SidecarExited",
})  # fmt: skip


def event_style(event: Mapping[str, Any]) -> str:
    """The colour of an event: failures and faults are red, other warnings yellow, recoveries green."""
    kind = event.get("kind")
    if kind in ("JobFailed", "StartedOver"):
        return "bold red"
    if kind in FAULTS:
        return "red"
    if event.get("severity") == "warning":
        return "yellow"
    return "green" if kind in ("Recovered", "JobSucceeded") else "dim" if kind == "GenerationStarted" else ""


def warning(text: str) -> dict[str, str]:
    """A warning of the command itself, in the form of an event."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"time": now, "kind": "Command", "severity": "warning", "reason": text}
