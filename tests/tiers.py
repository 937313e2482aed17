"""Which cases of a test `make test` plays, and which ones `make test-all` alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def witnesses(cases: Iterable[Any], *witnesses: Any) -> list[Any]:
    """All cases, for `parametrize`; those that are no witnesses are exhaustive tests. A case of several values is a
    tuple."""
    found = list(cases)
    unknown = [each for each in witnesses if each not in found]
    assert not unknown, f"no such cases: {unknown}"
    return [each if each in witnesses else _exhaustive(each) for each in found]


def _exhaustive(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.exhaustive)
