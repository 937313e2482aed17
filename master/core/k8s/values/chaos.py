"""Faults that are made on purpose, as users name them: `cpu-load=90:60s`, and armed for a member, `…@rank-index=1`.

One grammar for `outrider run --chaos`, `outrider chaos` and the annotation of an ElasticJob. An armed fault belongs to
the first member of a rank index, by its id: the one that replaces it is well. What makes the faults is the program
`training_hooks/chaos/main.py`, in the container that they are for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outrider.master.core.k8s.values import durations

ALLOWED = "allowed"
"""The annotation's word on a pod: `outrider chaos --pod` may break it, for who may execute commands in it."""
BAD_NODE = "bad-node"
LONGEST = 365 * 86400.0
VARIABLE = "OUTRIDER_CHAOS"
"""Of the trainer's container: faults with commas between them (docs/contracts.md §2)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What stands behind a fault's name: with a `unit` a whole number from 1 to `most`, else at most one of `words`."""

    unit: str = ""
    most: int = 0
    words: tuple[str, ...] = ()
    is_armed: bool = True
    """It makes sense before the member has begun."""

    def forms(self, name: str) -> list[str]:
        return [f"{name}={self.unit}"] if self.unit else [name, *(f"{name}={word}" for word in self.words)]

    def wrong(self, name: str, value: str) -> str:
        """Why this value cannot be; empty where it can."""
        if not self.unit:
            return "" if value in ("", *self.words) else f"it may be {' or '.join(self.forms(name))}"
        if re.fullmatch("[0-9]{1,9}", value) and 1 <= int(value) <= self.most:
            return ""
        return f"it is {name}={self.unit}, a whole number from 1 to {self.most}"


KINDS = {
    "cpu-load": Kind("PERCENT", 100),
    "fill-memory": Kind("PERCENT", 100),
    BAD_NODE: Kind(words=("slow",)),
    "hang": Kind(is_armed=False),
    "freeze-member": Kind(is_armed=False),
    "slow-network": Kind("MS", 60_000),
    "cut-network": Kind(),
}
NETWORK = ("slow-network", "cut-network")
"""Those that a trainer has no right to make where its network is its own."""
_FAULT = re.compile(r"(?P<name>[a-z][a-z-]*)(=(?P<value>[^:=]*))?(:(?P<time>.*))?")
_ARMED = re.compile(r"(?P<fault>.*)@rank[-_]index=(?P<index>[0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    value: str = ""
    seconds: float | None = None
    """None: until it is undone."""

    @property
    def lasts(self) -> str:
        """Its seconds, in digits; empty where it has none."""
        return "" if self.seconds is None else f"{self.seconds:.12g} s"

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.name}{value}" + ("" if self.seconds is None else f":{self.lasts.replace(' ', '')}")


@dataclass(frozen=True, slots=True)
class Armed:
    fault: Fault
    rank_index: int

    def __str__(self) -> str:
        return f"{self.fault}@rank-index={self.rank_index}"


def parsed(text: str) -> Fault:
    """Raises ValueError: a sentence that says what is wrong and what it may be."""
    found = _FAULT.fullmatch(text)
    kind = KINDS.get(found["name"]) if found else None
    if found is None or kind is None:
        raise ValueError(f"{text!r} is no fault; there are {', '.join(_forms(KINDS))}")
    if wrong := kind.wrong(found["name"], found["value"] or ""):
        raise ValueError(f"{text!r} cannot be: {wrong}")
    return Fault(found["name"], found["value"] or "", _seconds(text, found["time"]))


def _seconds(text: str, time: str | None) -> float | None:
    if time is None:
        return None
    try:
        return lasting(time)
    except ValueError as error:
        raise ValueError(f"{text!r} cannot be: {error}") from None


def lasting(time: str) -> float:
    """Seconds. Raises ValueError."""
    seconds = durations.parsed(time)
    if not seconds:
        raise ValueError(f"{time!r} is no duration above 0; write {durations.ALLOWED}")
    if seconds > LONGEST:
        raise ValueError(f"{time!r} is longer than a year; a fault without a duration lasts until it is undone")
    return seconds


def armed(text: str) -> Armed:
    """`FAULT@rank-index=N`. Raises ValueError."""
    found = _ARMED.fullmatch(text)
    if text == ALLOWED:
        raise ValueError(
            f"{text!r} is said by a pod: write it into the annotations of the pod's template; here faults are armed, "
            f"as cpu-load=90@rank-index=1"
        )
    if found is None:
        raise ValueError(f"{text!r} cannot be armed; it may be {_armed_forms()}, each with a duration as :60s before @")
    fault = parsed(found["fault"])
    if not KINDS[fault.name].is_armed:
        raise ValueError(f"{text!r} cannot be armed, only made while the job runs; it may be {_armed_forms()}")
    return Armed(fault, int(found["index"]))


def wrong_for(each: Armed, members: int, impossible: Mapping[str, str]) -> str:
    """Why a job with so many members cannot meet it; empty where it can. `impossible`: why, by the fault's name."""
    if each.fault.name in impossible:
        return impossible[each.fault.name]
    if each.rank_index >= members:
        return f"there are rank indexes 0 to {members - 1}"
    return ""


def _armed_forms() -> str:
    forms = _forms(name for name, kind in KINDS.items() if kind.is_armed)
    return " or ".join(f"{form}@rank-index=N" for form in forms)


def _forms(names: Iterable[str]) -> list[str]:
    return [form for name in names for form in KINDS[name].forms(name)]


def of_member(all_armed: Iterable[Armed], number: int) -> str:
    """The value of OUTRIDER_CHAOS for the member with this number in its id; empty where it is well."""
    return ",".join(str(each.fault) for each in all_armed if each.rank_index == number)


def asked(annotation: str) -> tuple[Armed, ...]:
    """What the annotation of an ElasticJob says: entries with commas between them. Raises ValueError."""
    return tuple(armed(entry) for entry in (part.strip() for part in annotation.split(",")) if entry)
