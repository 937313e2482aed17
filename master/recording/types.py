"""The types that a recording may name: the dataclasses and named tuples of the core's states, events and messages.

A reader makes objects of these types alone, and gives each only the fields that it has. In a recording a type has the
last part of its module's name and its own name, as `member.Member`.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any

from outrider.master.core import actions, events, spec
from outrider.master.core import state as states
from outrider.master.core.hangs import culprit
from outrider.master.core.job_kinds import Job
from outrider.wire import ids, messages

PACKAGES = (states, messages)
MODULES = (actions, events, spec, culprit, ids)
WITHOUT_VALUES = ("durability", "text_limits", "directions")
"""Modules of PACKAGES that declare how fields are stored or bounded, and no value of a state or a message."""


@cache
def known() -> dict[str, type]:
    """All types by their names in a recording."""
    found: dict[str, type] = {}
    for module in (*MODULES, *_parts()):
        for each in vars(module).values():
            if is_type(each) and each.__module__ == module.__name__:
                name = name_of(each)
                if name in found:
                    raise TypeError(f"two types have the name {name}: {found[name]} and {each}")
                found[name] = each
    return found


def _parts() -> list[ModuleType]:
    names = [
        f"{package.__name__}.{each.name}" for package in PACKAGES for each in pkgutil.iter_modules(package.__path__)
    ]
    kept = [name for name in names if name.rpartition(".")[2] not in WITHOUT_VALUES]
    ps = next(kind.__module__ for kind in Job.__args__ if kind.__name__ == "PsState")
    return [importlib.import_module(name) for name in (*kept, ps)]


def is_type(value: object) -> bool:
    """Whether this is a dataclass or a named tuple."""
    return isinstance(value, type) and (dataclasses.is_dataclass(value) or is_named_tuple(value))


def is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def name_of(kind: type) -> str:
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"
