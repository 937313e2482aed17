"""What a script says that it has spent its time on, from the traces of `time_probe.py`, beside the time account."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

SEEN = (
    "productive",
    "rendezvous",
    "loading",
    "first_step",
    "repeated_steps",
    "checkpoint_stall",
    "data_wait",
    "evaluation",
)
"""The causes that a script can see. Its imports are over before it begins where a template has made them."""
PART_OF = {"productive": "slow_member"}
"""The part of new steps by which a slow member holds up the others: a script cannot tell it from the rest."""
SECONDS, SHARE = 0.5, 0.02


def of_the_script(folder: Path, faults: Sequence[float]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of all ranks by cause, and at most so many more: of what a fault, at one of these unix times, cut short.

    Steps up to the highest one of an earlier generation are repeated ones.
    """
    found: dict[str, float] = defaultdict(float)
    cut: dict[str, float] = defaultdict(float)
    ranks = [[json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
             for path in folder.glob("trace-*.jsonl")]  # fmt: skip
    highest: dict[int, int] = defaultdict(int)
    for row in (row for rows in ranks for row in rows):
        highest[row["restart"]] = max(highest[row["restart"]], row.get("step", 0))
    for rows in ranks:
        before = max((step for restart, step in highest.items() if restart < rows[0]["restart"]), default=0)
        for row in rows:
            is_old = row["cause"] == "step" and row["step"] <= before
            cause = "repeated_steps" if is_old else "productive" if row["cause"] == "step" else row["cause"]
            if row["until"] is not None:
                found[cause] += row["until"] - row["since"] - row.get("waited", 0.0)
        last = rows[-1]
        ended = min((at for at in faults if at >= last["since"]), default=last["since"])
        if last["until"] is None:
            cut[last["cause"]] += ended - last["since"]
        elif last["cause"] in ("importing", "rendezvous", "loading"):
            cut["first_step"] += max(0.0, ended - last["until"])
        else:
            cut["repeated_steps"] += max(0.0, ended - last["until"])
            cut["data_wait"] += max(0.0, ended - last["until"])
    return dict(found), dict(cut)


def beyond(
    ours: Mapping[str, float], script: Mapping[str, float], cut: Mapping[str, float], seconds: float = SECONDS
) -> dict[str, tuple[float, float]]:
    """The causes for which both differ by more than these seconds and 2 %, with both values."""
    found = {}
    for cause in SEEN:
        mine, own = ours.get(cause, 0.0) + ours.get(PART_OF.get(cause, ""), 0.0), script.get(cause, 0.0)
        slack = max(seconds, SHARE * own)
        if not own - slack <= mine <= own + cut.get(cause, 0.0) + slack:
            found[cause] = (mine, own)
    return found
