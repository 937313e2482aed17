"""Three of the planted bugs; `python -m tests.mutants` plays all."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import caught_at
from tests.mutants.planted import QUICK


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_caught_by_the_simulation(name: str) -> None:
    _, seed, _ = caught_at(name, seeds=100)
    assert seed is not None
