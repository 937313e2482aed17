"""Why a straggler is slow, as far as its own counters tell.

Each cause is a part of its time: it is named where that part alone makes up half of what the member needs beyond the
others. The limits that hold the whole container or machine come first, because their seconds are also counted as
waiting for a core. What no counter shows stays unknown.
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
    """One word: throttled, stolen, data, contended, waiting, computing or unknown."""
    sentence: str
    """A clause, as it stands behind "is slow: "."""


SENTENCES = {
    "throttled": ("throttled", "its container's CPU limit throttles it, {} a step"),
    "stolen": ("stolen", "the hypervisor gives its machine's cores to others, {} a step"),
    "waited": ("data", "it waits for its DataLoader, {} a step longer than the others"),
    "delayed": ("contended", "other processes take its cores: its main thread waits for one {} a step longer"),
    "idle": ("waiting", "it waits {} a step longer before its first collective, without computing and not for a "
             "DataLoader: data that comes otherwise, a disk, a device"),
    "cpu": ("computing", "its main thread computes {} a step longer: slower cores, or more work"),
}  # fmt: skip
UNKNOWN = Cause("unknown", "the CPU's counters do not show why; a slow GPU would look like this")


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
    """Own times are mostly parts of a second."""
    return f"{1000 * value:.0f} ms" if value < 1 else seconds(value)
