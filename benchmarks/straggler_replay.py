"""Jobs that were recorded on a real machine (`straggler_record.py`), played to what decides."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure.report import table

from outrider.master.core.state.stragglers import Comparison
from outrider.master.core.stragglers import cause as stragglers_cause
from outrider.master.core.stragglers import detector as stragglers_detector
from outrider.wire.ids import MemberId
from outrider.wire.messages.report import OwnTime

TRACES = Path(__file__).parent / "traces"
BESIDE = ("member", "at")
"""What a row has beside the window that it is."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """`named`: (member, cause, factor, when) of every time a member was named."""

    trace: dict[str, Any]
    named: list[tuple[int, str, float, float]]

    @property
    def is_found(self) -> bool:
        """With its cause."""
        return (self.trace["slow"], self.trace["cause"]) in [(member, cause) for member, cause, *_ in self.named]

    @property
    def innocent(self) -> int:
        return sum(1 for member, *_ in self.named if member != self.trace["slow"])

    @property
    def slowdown(self) -> float:
        """What was done to it: by how much longer than before its steps take, on top of what it needs by itself."""
        rows = [row for row in self.trace["windows"] if row["member"] == self.trace["slow"]]
        before = [row for row in rows if row["at"] <= self.begins]
        own = min(float(row["busy"]) for row in before)
        return 1 + (pace(rows[len(before) - 1 :]) - pace(before)) / own

    @property
    def begins(self) -> float:
        """When something was done to it."""
        return float(self.trace["windows"][self.trace["windows_before"] - 1]["at"])

    @property
    def member_hours(self) -> float:
        """Of those to whom nothing was done."""
        rows = self.trace["windows"]
        members = len({row["member"] for row in rows})
        healthy = members - (self.trace["slow"] is not None)
        return float(healthy * (rows[-1]["at"] - rows[0]["at"]) / 3600)


def pace(rows: list[dict[str, Any]]) -> float:
    """Mean seconds a step, from one window to the last."""
    return float((rows[-1]["at"] - rows[0]["at"]) / (rows[-1]["first_step"] - rows[0]["first_step"]))


def replayed(path: Path) -> Replayed:
    trace = json.loads(path.read_text())
    comparison, named = Comparison(), []
    for row in trace["windows"]:
        own = OwnTime(**{name: value for name, value in row.items() if name not in BESIDE})
        for each in stragglers_detector.take(comparison, MemberId(str(row["member"])), (own,), 2):
            if not each.is_over:
                named.append((int(each.member), stragglers_cause.of(each.pace).kind, each.pace.factor, row["at"]))
    return Replayed(trace, named)


def all_replayed() -> list[Replayed]:
    return [replayed(path) for path in sorted(TRACES.glob("*.json"))]


def report(found: list[Replayed]) -> str:
    rows = [_row(each) for each in found]
    slow = [each for each in found if each.trace["slow"] is not None]
    innocent, hours = sum(each.innocent for each in found), sum(each.member_hours for each in found)
    head = ["recorded", "windows", "load", "fault in", "slower by", "reported", "as", "after"]
    return (f"{table(head, rows)}\n\nrecorded: {sum(each.is_found for each in slow)} of {len(slow)} slow members named "
            f"with their cause, {innocent} others named in {hours:.2f} member-hours of those")  # fmt: skip


def _row(found: Replayed) -> list[str]:
    trace = found.trace
    reported = ", ".join(f"member {member} ({cause})" for member, cause, *_ in found.named) or "none"
    factors = ", ".join(f"{factor:.1f} ×" for _, _, factor, _ in found.named) or "–"
    after = ", ".join(f"{at - found.begins:.0f} s" for *_, at in found.named) or "–"
    hurt, slower = "none", "–"
    if trace["slow"] is not None:
        hurt, slower = f"member {trace['slow']}", f"{found.slowdown:.1f} ×"
    load = f"{trace['machine']['load'][0]:.1f}"
    return [trace["kind"], str(len(trace["windows"])), load, hurt, slower, reported, factors, after]


def is_right(found: list[Replayed]) -> bool:
    """Whether exactly the members with a fault are reported, with the right cause."""
    return all((each.is_found or each.trace["slow"] is None) and not each.innocent for each in found)
