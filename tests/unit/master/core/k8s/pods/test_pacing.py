"""Events as they happen, and not all at once."""

from __future__ import annotations

from outrider.master.core.k8s.pods.event_rate import BURST, Allowance


def written(allowance: Allowance, count: int, now: float) -> list[float]:
    """When each of so many that wait is written."""
    moments = []
    for _ in range(count):
        moments.append(now)
        now += allowance.take(now)
    return moments


def test_a_few_are_written_at_once() -> None:
    assert written(Allowance(), BURST, 100.0) == [100.0] * BURST


def test_of_many_each_second_takes_one() -> None:
    assert written(Allowance(), BURST + 3, 100.0)[BURST:] == [101.0, 102.0, 103.0]


def test_quiet_times_bring_the_burst_back_and_no_more() -> None:
    allowance = Allowance()
    written(allowance, BURST, 100.0)
    assert written(allowance, BURST + 1, 10_000.0) == [10_000.0] * BURST + [10_001.0]
