"""What ranks answer when they are asked where they are, as the hooks would write it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

COLLECTIVE = "train.py:33 main"
SCRIPT = "/data/train.py"
LOOP = 'Thread 0x7f (most recent call first):\n  File "/usr/lib/python3.12/threading.py", line 359 in wait\n\n'
WAITING = f"""{LOOP}Current thread 0x1 (most recent call first):
  File "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", line 2810 in all_reduce
  File "{SCRIPT}", line 33 in main
  File "{SCRIPT}", line 50 in <module>
"""


def stack(line: int, function: str = "load") -> str:
    return f"""{LOOP}Current thread 0x1 (most recent call first):
  File "{SCRIPT}", line {line} in {function}
  File "{SCRIPT}", line 50 in <module>
"""


LONG = 60.0
"""Seconds since a call of which nothing else is said."""


def call(seq: int, state: str = "scheduled", age: float | None = None, **other: Any) -> dict[str, Any]:
    return {
        "id": "0", "seq": seq, "op": "gloo:all_reduce", "state": state, "sizes": [[4, 4]], "dtypes": ["Float"],
        "group": "default_pg", "frame": f"/data/{COLLECTIVE}", "age": age, **other,
    }  # fmt: skip


@dataclass
class Answers:
    """One rank's; None: its process itself does not answer."""

    calls: list[dict[str, Any]] | None = field(default_factory=list)
    stack: str = WAITING
    process: str = ""
    used: Callable[[], dict[str, float]] | None = None
    """What its process has used by now."""
    has_left: bool = False

    def row(self, rank: int, local_rank: int, what: str, age: float = LONG) -> dict[str, Any]:
        """`age`: of those calls that say none."""
        known = {"rank": rank, "local_rank": local_rank, "pid": 100 + rank, "step": 7, "phase": "step"}
        known |= {"process": self.process} if self.process else {}
        if what == "stacks":
            return known | {"stack": self.stack}
        known |= {"used": self.used()} if self.used is not None else {}
        if self.calls is None:
            return known
        calls = [each | {"age": age if each["age"] is None else each["age"]} for each in self.calls]
        return known | {"collective": (calls or [None])[0], "groups": calls, "left": self.has_left}


def waits(seq: int = 14, **other: Any) -> Answers:
    """It waits in a collective."""
    return Answers([call(seq, **other)])


def elsewhere(seq: int = 13, line: int = 40) -> Answers:
    """Its last collective is over, and it is somewhere else in its script."""
    return Answers([call(seq, "completed")], stack(line))


def holds_the_gil(line: int = 41) -> Answers:
    return Answers(None, stack(line, "match"))


def mute() -> Answers:
    return Answers(None, "")


def is_stopped() -> Answers:
    return Answers(None, "", "stopped")


def trains_on(age: float = 0.1) -> Answers:
    return Answers([call(14, "completed", age)])


def body(rows: list[dict[str, Any]]) -> str:
    return json.dumps({"ranks": rows})
