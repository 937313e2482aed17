"""Planted bugs are caught by the simulation; `python -m tests.mutants` looks for the seeds."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import catches
from tests.mutants.planted import CAUGHT_AT, MUTANTS, WITNESSES
from tests.mutants.seams import SEAMS, real
from tests.tiers import witnesses


@pytest.mark.parametrize("name", witnesses(MUTANTS, *WITNESSES))
def test_a_planted_bug_is_caught_by_the_simulation(name: str) -> None:
    assert catches(name, CAUGHT_AT[name])


def test_bugs_are_planted_at_what_is_public_and_there() -> None:
    for seam in SEAMS:
        assert not any(part.startswith("_") for part in SEAMS[seam].replace(":", ".").split("."))
        assert real(seam) is not None
