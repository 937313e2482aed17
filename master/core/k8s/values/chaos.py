"""Injected faults as users write them: `cpu-load=90:60s`, or armed for one member: `cpu-load=90:60s@rank-index=1`.

`outrider run --chaos`, `outrider chaos` and the annotation of an ElasticJob share one grammar. An armed fault applies
to the first member of a rank index only, by its id; its replacement is not affected. The program
`training_hooks/chaos/main.py` injects the fault, in the container that the fault is for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outrider.master.core.k8s.values import durations
from outrider.master.core.k8s.values.field_errors import invalid, unsupported

ALLOWED = "allowed"
"""Value of a pod's annotation that permits `outrider chaos --pod` to users who may execute commands in the pod."""
BAD_NODE = "bad-node"
LONGEST = 365 * 86400.0
"""Maximum duration of a fault in seconds."""
VARIABLE = "OUTRIDER_CHAOS"
"""Variable of the trainer's container with its armed faults, separated by commas (docs/contracts.md §2)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The values that one fault takes: with a `unit` an integer from 1 to `most`, otherwise none or one of `words`."""

    unit: str = ""
    most: int = 0
    words: tuple[str, ...] = ()
    is_armed: bool = True
    """Whether the fault may be armed before its member starts."""

    def forms(self, name: str) -> list[str]:
        return [f"{name}={self.unit}"] if self.unit else [name, *(f"{name}={word}" for word in self.words)]

    def wrong(self, name: str, value: str) -> str:
        """What the value must be if this value is not allowed; empty if it is."""
        if not self.unit:
            return "" if value in ("", *self.words) else f"must be {' or '.join(self.forms(name))}"
        if re.fullmatch("[0-9]{1,9}", value) and 1 <= int(value) <= self.most:
            return ""
        return f"must be {name}={self.unit}, with {self.unit} an integer from 1 to {self.most}"


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
"""Faults that need NET_ADMIN if the trainer has its own network namespace."""
_FAULT = re.compile(r"(?P<name>[a-z][a-z-]*)(=(?P<value>[^:=]*))?(:(?P<time>.*))?")
_ARMED = re.compile(r"(?P<fault>.*)@rank[-_]index=(?P<index>[0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    value: str = ""
    seconds: float | None = None
    """Duration of the fault; None if it lasts until the user undoes it."""

    @property
    def lasts(self) -> str:
        """The duration as text, for example `60 s`; empty if the fault has none."""
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
    """The fault that a text names. Raises ValueError with the value and what it must be."""
    found = _FAULT.fullmatch(text)
    kind = KINDS.get(found["name"]) if found else None
    if found is None or kind is None:
        raise ValueError(unsupported("", text, _forms(KINDS)))
    if wrong := kind.wrong(found["name"], found["value"] or ""):
        raise ValueError(invalid("", text, wrong))
    return Fault(found["name"], found["value"] or "", _seconds(text, found["time"]))


def _seconds(text: str, time: str | None) -> float | None:
    if time is None:
        return None
    if wrong := _not_lasting(time):
        raise ValueError(invalid("", text, f"the duration {wrong}"))
    return durations.parsed(time)


def lasting(time: str) -> float:
    """The duration of a fault in seconds. Raises ValueError."""
    if wrong := _not_lasting(time):
        raise ValueError(invalid("", time, wrong))
    return durations.parsed(time) or 0.0


def _not_lasting(time: str) -> str:
    """What the duration must be if this one is not allowed; empty if it is."""
    seconds = durations.parsed(time)
    if not seconds:
        return f"must be greater than 0: {durations.ALLOWED}"
    return "must be at most one year; leave it out for a fault that lasts until undone" if seconds > LONGEST else ""


def armed(text: str) -> Armed:
    """The armed fault that `FAULT@rank-index=N` names. Raises ValueError."""
    found = _ARMED.fullmatch(text)
    if text == ALLOWED:
        raise ValueError(
            invalid(
                "",
                text,
                "must be a fault such as cpu-load=90@rank-index=1; allowed belongs in the annotations "
                "of the pod template",
            )
        )
    if found is None:
        raise ValueError(invalid("", text, f"must be {_armed_forms()}; a duration such as :60s goes before @"))
    fault = parsed(found["fault"])
    if not KINDS[fault.name].is_armed:
        raise ValueError(
            invalid("", text, f"{fault.name} can only be injected while the job runs; must be {_armed_forms()}")
        )
    return Armed(fault, int(found["index"]))


def wrong_for(each: Armed, members: int, impossible: Mapping[str, str]) -> str:
    """Why a job with this number of members cannot have the fault; empty if it can.

    `impossible`: the faults that the job cannot have, each with the reason.
    """
    if each.fault.name in impossible:
        return impossible[each.fault.name]
    if each.rank_index >= members:
        return f"rank-index must be between 0 and {members - 1}"
    return ""


def _armed_forms() -> str:
    forms = _forms(name for name, kind in KINDS.items() if kind.is_armed)
    return " or ".join(f"{form}@rank-index=N" for form in forms)


def _forms(names: Iterable[str]) -> list[str]:
    return [form for name in names for form in KINDS[name].forms(name)]


def of_member(all_armed: Iterable[Armed], number: int) -> str:
    """The value of OUTRIDER_CHAOS for the member with this number in its id; empty if nothing is armed for it."""
    return ",".join(str(each.fault) for each in all_armed if each.rank_index == number)


def all_armed(annotation: str) -> tuple[Armed, ...]:
    """The armed faults in the annotation of an ElasticJob, separated by commas. Raises ValueError."""
    return tuple(armed(entry) for entry in (part.strip() for part in annotation.split(",")) if entry)
