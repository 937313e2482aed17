"""Worlds in which each master and each sidecar is of this release or of the one before, and masters change often.

Both share `wire` and the simulated shell; what the bytes of either mean to the other is shown in `tests/unit/wire`.
Events and actions go from one release's classes into the other's by their names and those of their fields.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from outrider.sidecar.core.events import HookSaid
from outrider.wire import messages
from tests import release_before
from tests.simulation.pods import Pod
from tests.simulation.world import World

OURS, THEIRS = ("outrider.master.core", "outrider.sidecar.core"), ("before.master.core", "before.sidecar.core")
EVENTS_BEFORE = {
    "Saved": "CheckpointSaved", "Checked": "MemberChecked answer", "PatternDropped": "PatternGivenUp said",
    "StateOffered": "StateOfferMade", "StateSaved": "StateWritten answer", "Remembered": "CheckpointRemembered said",
}  # fmt: skip
"""What HookSaid of such a message was in a release that did not know it: its event, and the field of that."""
RENAMED = {
    "LeaseLost": "LeaseLapsed", "CreateRejected": "CreateRefused", "ScaleRequested": "ScaleAsked",
    "RestartRequested": "RestartAsked", "RestartRejected": "RestartRefused",
}  # fmt: skip
"""Events of the master's core, to their names in the release before."""
NAMES = RENAMED | {before: now for now, before in RENAMED.items()}
KINDS_BEFORE = {
    "RanksHang": "HangDetected", "LinkCut": "LinkDown", "CheckpointNotReceived": "CheckpointTransferFailed",
    "CheckpointKept": "CheckpointReplicated", "NodeCheckInDoubt": "NodeCheckInconclusive",
    "MemberKept": "ExclusionSkipped",
}  # fmt: skip
"""Kinds of Events that laws look at, as the release before named them."""
CHANGES = (10.0, 30.0)
"""Seconds between two masters."""


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """The cores of the release before, as the package `before`."""
    inner = folder / "before"
    inner.mkdir()
    release_before.unpacked(inner, "master", "sidecar")
    for path in inner.rglob("*.py"):
        text = re.sub(r"\b(master|sidecar)\.core\b", r"before.\1.core", path.read_text())
        text = re.sub(r"(?m)^(\s*from) wire\.messages\b", r"\1 before.messages", text)
        path.write_text(re.sub(r"(?m)^(\s*from) wire\b", r"\1 outrider.wire", text))
    ours = [each.name for each in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}.")]
    (inner / "messages.py").write_text("".join(f"from {name} import *\n" for name in ours))
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.split(".")[0] == "before"]:
            del sys.modules[name]


@cache
def _classes(package: str) -> dict[str, Any]:
    """By name, each that a module of the package defines."""
    found: dict[str, Any] = {}
    for each in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        for name, value in vars(importlib.import_module(each.name)).items():
            if isinstance(value, type) and value.__module__ == each.name:
                found.setdefault(name, value)
    return found


def _counterpart(kind: type, here: tuple[str, str], there: tuple[str, str]) -> Any:
    """The class of that name in the other release, wherever it lies; None where it has none."""
    for each in kind.__mro__:
        for ours, theirs in zip(here, there, strict=True):
            if each.__module__.startswith(ours):
                known = _classes(theirs)
                return known.get(each.__name__) or known.get(NAMES.get(each.__name__, ""))
    return kind


def _given(value: Any, here: tuple[str, str], there: tuple[str, str]) -> Any:
    """The same in the other release's classes, without the fields that it does not know; None: it knows none of it."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_given(each, here, there) for each in value)
    if not dataclasses.is_dataclass(value):
        return value
    kind = _counterpart(type(value), here, there)
    if kind is None or kind is type(value):
        return kind and value
    names = [field.name for field in dataclasses.fields(kind)]
    found = {name: _given(getattr(value, name), here, there) for name in names if hasattr(value, name)}
    return kind(**found)


def _event_of_before(event: Any) -> Any:
    if not isinstance(event, HookSaid) or "HookSaid" in _classes(THEIRS[1]):
        return _given(event, OURS, THEIRS)
    name, *field = EVENTS_BEFORE[type(event.message).__name__].split()
    kind, message = _classes(THEIRS[1])[name], _given(event.message, OURS, THEIRS)
    if field:
        return kind(**{field[0]: message})
    names = [each.name for each in dataclasses.fields(kind)]
    return kind(**{each: getattr(message, each, 0) for each in names})  # what is missing: a local rank


def _renamed(action: Any) -> Any:
    kind = KINDS_BEFORE.get(getattr(action, "kind", ""))
    return action if kind is None else dataclasses.replace(action, kind=kind)


def _of_before(module: Any, check: Any) -> SimpleNamespace:
    def step(state: Any, event: Any, now: float) -> list[Any]:
        known = _event_of_before(event)
        return (
            [] if known is None else [_renamed(_given(each, THEIRS, OURS)) for each in module.step(state, known, now)]
        )

    return SimpleNamespace(step=step, next_deadline=module.next_deadline, check=lambda state, _actions: check(state))


class TwoReleases(World):
    def __init__(self, seed: int, verbose: bool = False) -> None:
        self.releases: Counter[str] = Counter()
        super().__init__(seed, verbose)
        self._changes = random.Random(f"changes {seed}")
        self.time.after(self._changes.uniform(*CHANGES), self._change)

    def _change(self) -> None:
        if not self.faults.over:
            self.masters.crash()
            self.time.after(self._changes.uniform(*CHANGES), self._change)

    def _is_of_before(self, what: str, who: object) -> bool:
        is_so = random.Random(f"release {self.seed} {what} {who}").random() < 0.5
        self.releases[f"{what} of the release before" if is_so else f"{what} of this one"] += 1
        return is_so

    def master_core(self, term: int) -> tuple[Any, Any]:
        if not self._is_of_before("master", term):
            return super().master_core(term)
        kinds = importlib.import_module("before.master.core.kinds")
        return _of_before(kinds, kinds.check), kinds.new(_given(self.scenario.spec, OURS, THEIRS))

    def sidecar_core(self, pod: Pod) -> tuple[Any, Any]:
        if not self._is_of_before("sidecar", pod.uid):
            return super().sidecar_core(pod)
        pod.alone_after = 0.0  # so its webhook wrote it
        reducer, invariants, state = (
            importlib.import_module(f"before.sidecar.core.{name}") for name in ("reducer", "invariants", "state")
        )
        return _of_before(reducer, invariants.check), state.State()
