"""Names the cause of a straggler, as far as its own counters show one.

Each cause is a part of the member's time. It is named if that part alone is at least half of the time that the member
needs beyond the others. The limits of the whole container or machine come first, because their seconds are also counted
as waiting for a core. If no counter shows the cause, it is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.master.core.state.stragglers import Lag
from outrider.master.core.stragglers.detector import PARTS
from outrider.master.core.text import seconds

HALF = 0.5


@dataclass(frozen=True, slots=True)
class Cause:
    kind: str
    """The cause in one word: throttled, stolen, data, contended, waiting, computing or unknown."""
    sentence: str
    """The cause as a clause that follows "is slow: "."""


SENTENCES = {
    "throttled": ("throttled", "its container's CPU limit throttles it, {} a step"),
    "stolen": ("stolen", "the hypervisor takes CPU time from its machine, {} a step"),
    "waited": ("data", "it waits for its DataLoader, {} a step longer than the others"),
    "delayed": ("contended", "other processes use its cores: its main thread waits for a core {} a step longer"),
    "idle": ("waiting", "it waits {} a step longer before its first collective, idle and outside a DataLoader: "
             "other data loading, a disk or a device"),
    "cpu": ("computing", "its main thread computes {} a step longer: slower cores, or more work"),
}  # fmt: skip
UNKNOWN = Cause("unknown", "its CPU counters do not show why; a slow GPU would look like this")


def of(pace: Lag) -> Cause:
    """The cause of a slow pace."""
    more = dict(zip(PARTS, pace.more, strict=True)) if pace.more else {}
    for part in ("throttled", "stolen"):
        if more.get(part, 0.0) >= HALF * pace.excess:
            return _cause(part, more[part])
    part = max(more, key=lambda name: (more[name], name), default="")
    return _cause(part, more[part]) if part and more[part] >= HALF * pace.excess else UNKNOWN


def _cause(part: str, value: float) -> Cause:
    kind, text = SENTENCES[part]
    return Cause(kind, text.format(duration(value)))


def duration(value: float) -> str:
    """A duration in ms below one second, because own times are mostly that short."""
    return f"{1000 * value:.0f} ms" if value < 1 else seconds(value)
