"""What real ranks told of their own time (`benchmarks/traces`), played to what decides: jobs that were left alone,
slowed down as a whole, or had something done to one of their two members."""

from __future__ import annotations

import pytest
from straggler_record import KINDS
from straggler_replay import TRACES, all_replayed, is_right, replayed, report


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_recorded_job_the_hurt_member_is_named_with_its_cause_and_nobody_else(kind: str) -> None:
    found = replayed(TRACES / f"{kind.replace(' ', '-')}.json")
    expected = [(found.trace["slow"], KINDS[kind].cause)] if KINDS[kind].cause else []
    assert [(member, cause) for member, cause, *_ in found.named] == expected


def test_nobody_is_named_before_he_was_hurt() -> None:
    for found in all_replayed():
        assert all(at > found.begins for *_, at in found.named)


def test_the_benchmark_counts_them_apart_from_jobs_that_are_made_up() -> None:
    found = all_replayed()
    assert is_right(found)
    slow = sum(1 for kind in KINDS.values() if kind.cause)
    assert f"recorded: {slow} of {slow} slow members named with their cause, 0 others named" in report(found)
