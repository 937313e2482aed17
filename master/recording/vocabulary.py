"""The words of Outrider's own source: the text constants in the code of the core and of what surrounds it.

A text that equals one of them is public, so a recording may have it: stages, phases, kinds of Events. And each text
with which the core compares a value is among them, so that a replay finds the same answer.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import CodeType

PACKAGES = ("outrider.master.core", "outrider.master.service", "outrider.wire")
"""Read from their compiled code, never from their variables: these could hold values of this run."""


@cache
def words() -> frozenset[str]:
    """Every text constant. The first call takes a tenth of a second."""
    return frozenset(word for package in PACKAGES for name in _modules(package) for word in _constants(name))


@cache
def single_words() -> frozenset[str]:
    """The words within all constants, without their punctuation."""
    return frozenset(part.strip(".,;:()[]{}'\"") for word in words() for part in word.split())


def _modules(package: str) -> Iterator[str]:
    spec = importlib.util.find_spec(package)
    for each in pkgutil.iter_modules(spec.submodule_search_locations if spec is not None else (), f"{package}."):
        yield each.name
        if each.ispkg:
            yield from _modules(each.name)


def _constants(module: str) -> Iterator[str]:
    spec = importlib.util.find_spec(module)
    loader = spec.loader if spec is not None else None
    if isinstance(loader, importlib.abc.InspectLoader):
        yield from _of(loader.get_code(module))


def _of(constant: object) -> Iterator[str]:
    if isinstance(constant, str):
        yield constant
    elif isinstance(constant, tuple | frozenset):
        for each in constant:
            yield from _of(each)
    elif isinstance(constant, CodeType):
        for each in constant.co_consts:
            yield from _of(each)
