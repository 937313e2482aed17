"""The detection of stragglers: windows in, names out."""

from __future__ import annotations

import statistics
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.master.core.state.stragglers import Comparison, Lag, Named
from outrider.master.core.stragglers import cause as stragglers_cause
from outrider.master.core.stragglers.detector import compare, median_without, take
from outrider.wire.ids import MemberId
from outrider.wire.messages.report import OwnTime

STRIDE, STEP = 128, 0.1
"""12.8 s from window to window."""


def window(number: int, gap: float, *, rank: int = 0, busy: float = 0.0, source: str = "recorder and cpu",
           shape: int = 7, **parts: float) -> OwnTime:  # fmt: skip
    return OwnTime(rank, number * STRIDE, 8, source, gap, busy, STEP, shape, **parts)


class Job:
    """Members that report a window each, with their gaps."""

    def __init__(self, *gaps: float, seed: int = 0) -> None:
        self.gaps, self.comparison, self.number = list(gaps), Comparison(), 0
        self.random = Random(seed)
        self.noise = 0.0

    def window(self, **changes: object) -> list[Named]:
        self.number += 1
        found: list[Named] = []
        for member, gap in enumerate(self.gaps):
            own = window(self.number, gap * self.random.lognormvariate(0, self.noise))
            found += self.report(member, replace(own, **changes))  # type: ignore[arg-type]
        return found

    def report(self, member: int, *windows: OwnTime) -> list[Named]:
        return take(self.comparison, MemberId(f"worker-{member}"), windows, len(self.gaps))

    def windows(self, count: int) -> list[Named]:
        return [named for _ in range(count) for named in self.window()]


def who(found: list[Named]) -> list[str]:
    return [("-" if named.is_over else "+") + named.member for named in found]


def test_a_member_that_is_slower_in_three_windows_is_named_once() -> None:
    job = Job(0.02, 0.02, 0.03, 0.02)
    assert who(job.windows(2)) == []
    assert who(job.windows(2)) == ["+worker-2"]
    assert who(job.windows(20)) == []
    assert job.comparison.named[MemberId("worker-2")].pace.factor == pytest.approx(1.5)


def test_three_windows_that_are_over_within_half_a_minute_are_not_enough() -> None:
    job = Job(0.01, 0.02, 0.01)
    assert who([n for _ in range(3) for n in job.window(step_seconds=0.05)]) == []
    assert 2 * STRIDE * 0.05 < 30


def test_windows_of_two_long_steps_have_to_be_more_than_three() -> None:
    """Three pauses in a row make no straggler."""
    comparison, found = Comparison(), list[tuple[int, Named]]()
    for step in range(0, 40, 2):
        for member, gap in enumerate((2.0, 2.0, 6.0)):
            own = OwnTime(0, step, 2, "recorder and cpu", gap, 0.0, 10.0, 7)
            found += [(step, named) for named in take(comparison, MemberId(f"worker-{member}"), (own,), 3)]
    assert [(step, named.member) for step, named in found] == [(8, "worker-2")]


def test_one_extremely_slow_window_does_not_make_up_for_the_others() -> None:
    found = {}
    for last in (2.0, 40.0):
        job = Job(0.01, 0.01, 0.01)
        job.noise = 0.0
        job.comparison.changes.extend([0.15] * 16)
        for gap in (0.014, 0.014, 0.01 * last):
            job.gaps[2] = gap
            found[last] = who(job.window(step_seconds=1.0))
    assert found == {2.0: [], 40.0: []}


def test_a_member_that_keeps_up_again_is_no_longer_named_and_may_be_named_again() -> None:
    job = Job(0.02, 0.04, 0.02)
    assert who(job.windows(4)) == ["+worker-1"]
    job.gaps[1] = 0.021
    assert who(job.windows(2)) == []
    assert who(job.windows(1)) == ["-worker-1"]
    assert job.comparison.named == {}
    job.gaps[1] = 0.04
    assert who(job.windows(5)) == ["+worker-1"]


def test_a_healthy_window_in_between_restarts_the_count() -> None:
    job = Job(0.02, 0.04, 0.02)
    for _ in range(6):
        assert who(job.windows(2)) == []
        job.gaps[1] = 0.02
        assert who(job.windows(1)) == []
        job.gaps[1] = 0.04


def test_no_member_is_named_if_the_whole_job_slows_down() -> None:
    job = Job(0.02, 0.021, 0.019, 0.02)
    job.windows(5)
    job.gaps = [3 * gap for gap in job.gaps]
    assert who([n for _ in range(20) for n in job.window(step_seconds=0.3)]) == []


def test_of_two_members_the_slower_one_is_named_as_such() -> None:
    found = Job(0.02, 0.03).windows(4)
    assert (who(found), found[0].of_two) == (["+worker-1"], True)


def test_a_single_member_is_not_compared() -> None:
    job = Job(0.02)
    assert who(job.windows(9)) == []
    assert "so it is not compared" in job.comparison.problems[MemberId("worker-0")]


def test_two_slow_ones_of_four_are_both_named() -> None:
    assert who(Job(0.02, 0.04, 0.04, 0.02).windows(5)) == ["+worker-1", "+worker-2"]


def test_slowness_that_costs_the_job_nothing_is_not_reported() -> None:
    assert who(Job(0.001, 0.003, 0.001).windows(9)) == [], "2 ms of a step of 100 ms"
    tiny = Job(0.0004, 0.0012, 0.0004)
    assert who([n for _ in range(400) for n in tiny.window(step_seconds=0.002)]) == [], "0.8 ms"


def test_a_rank_that_waits_for_the_slow_one_is_not_slow() -> None:
    """BatchNorm: both ranks take equally long for a step, and the healthy one spends it in the broadcast."""
    job = Job(0.061, 0.0002)
    found = [n for _ in range(4) for n in job.window(busy=0.002)]
    assert who(found) == ["+worker-0"]


def test_a_busier_rank_is_slower_even_if_its_first_collective_comes_at_once() -> None:
    """FSDP on a throttled member: it calls its first gather as early as the others."""
    comparison, found = Comparison(), list[Named]()
    for number in range(1, 5):
        for member, busy in enumerate((0.03, 0.06, 0.03)):
            own = window(number, 0.0002, busy=busy, throttled=busy - 0.03)
            found += take(comparison, MemberId(f"worker-{member}"), (own,), 3)
    assert who(found) == ["+worker-1"]
    assert stragglers_cause.of(found[0].pace).kind == "throttled"


def test_members_with_different_numbers_of_ranks_are_compared_rank_by_rank() -> None:
    comparison, found = Comparison(), list[Named]()
    for number in range(1, 6):
        for member, gaps in enumerate([(0.02,), (0.02, 0.02, 0.05, 0.02), (0.02, 0.02)]):
            own = tuple(window(number, gap, rank=rank) for rank, gap in enumerate(gaps))
            found += take(comparison, MemberId(f"worker-{member}"), own, 7)
    assert who(found) == ["+worker-1"]
    assert found[0].local_rank == 2


def test_ranks_that_call_different_collectives_are_not_compared() -> None:
    """The stages of a pipeline: the last one also has the head of the model."""
    comparison, found = Comparison(), list[Named]()
    for number in range(1, 9):
        for member, (gap, shape) in enumerate([(0.02, 1), (0.02, 1), (0.05, 2), (0.05, 2)]):
            found += take(comparison, MemberId(f"worker-{member}"), (window(number, gap, shape=shape),), 4)
    assert found == []


def test_members_with_different_sources_are_not_compared() -> None:
    comparison, found = Comparison(), list[Named]()
    for number in range(1, 9):
        for member, source in enumerate(("recorder", "recorder", "cpu")):
            own = window(number, 0.02 if source == "recorder" else 0.0, busy=0.09, source=source)
            found += take(comparison, MemberId(f"worker-{member}"), (own,), 3)
    assert found == []
    assert MemberId("worker-2") in comparison.problems


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"gap": -0.1}, "its gap of -0.1 s a step is not a valid time"),
        ({"busy": float("nan")}, "its busy of nan s"),
        ({"waited": float("inf")}, "its waited of inf s"),
        ({"gap": 1e9}, "its gap of 1e+09 s"),
        ({"step_seconds": 0.0}, "its steps take 0 s"),
        ({"gap": 0.5}, "its gap of 0.5 s is longer than its step of 0.1 s"),
    ],
)
def test_invalid_times_are_reported_and_ignored(bad: dict[str, float], problem: str) -> None:
    job = Job(0.02, 0.02, 0.02)
    found: list[Named] = []
    for number in range(1, 20):
        found += job.report(0, replace(window(number, 0.02), **bad))
        found += job.report(1, window(number, 0.02))
        found += job.report(2, window(number, 0.05))
    assert problem in job.comparison.problems[MemberId("worker-0")]
    assert who(found) == ["+worker-2"], "the others are compared without it"


def test_a_silent_member_is_not_waited_for_longer_than_three_windows() -> None:
    job = Job(0.02, 0.02, 0.05)
    found: list[Named] = []
    for number in range(1, 10):
        found += job.report(1, window(number, 0.02))
        found += job.report(2, window(number, 0.05))
    assert who(found) == ["+worker-2"]
    assert len(job.comparison.open) <= 1


def test_a_member_that_was_silent_for_long_and_reports_again_is_waited_for_again() -> None:
    """It reports its windows last."""
    job = Job(0.02, 0.02, 0.05)
    for number in range(1, 8):
        job.report(0, window(number, 0.02))
        job.report(1, window(number, 0.02))
    found = [n for number in range(8, 13) for m, gap in enumerate(job.gaps) for n in job.report(m, window(number, gap))]
    assert who(found) == ["+worker-2"]


@pytest.mark.parametrize("ahead", [1, 5, 1 << 40])
def test_a_rank_that_reports_steps_that_no_other_has_made_is_ignored_and_the_others_are_still_compared(
    ahead: int,
) -> None:
    job = Job(0.02, 0.02, 0.05)
    found: list[Named] = []
    for number in range(1, 20):
        found += job.report(0, window(1000 + number * ahead, 0.09))
        for member in (1, 2):
            found += job.report(member, window(number, job.gaps[member]))
    assert who(found) == ["+worker-2"]
    assert job.comparison.problems[MemberId("worker-0")] == "it reports steps that no other member has made"
    found = [
        n for number in range(20, 30) for m, gap in enumerate(job.gaps) for n in job.report(m, window(number, gap))
    ]
    assert (found, job.comparison.problems) == ([], {}), "it is believed again beside the others"


def test_a_window_that_comes_late_or_twice_changes_nothing() -> None:
    job = Job(0.02, 0.05, 0.02)
    job.windows(4)
    before = repr(job.comparison)
    assert job.report(1, window(2, 0.02)) == []
    assert repr(job.comparison) == before


def test_a_rank_that_reports_every_second_window_is_compared_at_those() -> None:
    job = Job(0.02, 0.05, 0.02)
    found: list[Named] = []
    for number in range(1, 40):
        for member, gap in enumerate(job.gaps):
            if number % 2 == 0 or member != 1:
                found += job.report(member, window(number, gap))
    assert who(found) == ["+worker-1"]


def test_if_steps_vary_by_themselves_it_takes_longer_to_name_a_member() -> None:
    calm, wild = Job(0.02, 0.03, 0.02, 0.02), Job(0.02, 0.03, 0.02, 0.02)
    wild.noise = 0.15
    needed = []
    for job in (calm, wild):
        while not job.comparison.named:
            job.window()
        needed.append(job.number)
    assert needed[0] < needed[1] < 40


def test_a_long_healthy_run_names_no_member_however_noisy_it_is() -> None:
    for noise in (0.02, 0.1, 0.2):
        job = Job(*[0.02] * 8, seed=3)
        job.noise = noise
        assert who(job.windows(1500)) == []


@given(st.lists(st.floats(0, 100), min_size=2, max_size=30), st.data())
def test_the_median_of_the_others_is_that_of_a_list_without_them(values: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(values) - 1))
    taken, rest = values[:count], values[count:]
    assert median_without(sorted(values), taken) == pytest.approx(statistics.median(rest))


def test_a_factor_is_always_positive() -> None:
    ranks = {(MemberId(f"worker-{n}"), 0): window(1, gap) for n, gap in enumerate((0.0, 0.0, 0.05))}
    paces = compare(ranks)
    assert [pace.is_slow for pace in paces.values()] == [False, False, True]
    assert all(pace.factor > 0 for pace in paces.values())


# -- why ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ({"throttled": 0.06, "delayed": 0.06}, "throttled"),
        ({"stolen": 0.06}, "stolen"),
        ({"waited": 0.06}, "data"),
        ({"delayed": 0.05, "cpu": 0.01}, "contended"),
        ({}, "waiting"),
        ({"cpu": 0.06}, "computing"),
        ({"cpu": 0.02, "waited": 0.02}, "unknown"),
    ],
)
def test_the_part_that_makes_up_half_of_the_excess_is_the_cause(parts: dict[str, float], kind: str) -> None:
    for others in (1, 3, 100):
        ranks = {(MemberId(f"worker-{n}"), 0): window(1, 0.02, busy=0.01) for n in range(others)}
        busy = 0.01 + sum(parts.get(part, 0.0) for part in ("waited", "delayed", "cpu", "stolen"))
        slow = MemberId(f"worker-{others}")
        ranks[slow, 0] = window(1, 0.08, busy=busy, **parts)
        cause = stragglers_cause.of(compare(ranks)[slow, 0])
        assert cause.kind == kind
        assert kind == "unknown" or " ms" in cause.sentence


def test_a_part_that_all_members_share_is_not_a_cause() -> None:
    all_wait = {"waited": 0.06, "source": "recorder"}
    ranks = {(MemberId(f"worker-{n}"), 0): replace(window(1, 0.06), **all_wait) for n in range(3)}  # type: ignore[arg-type]
    ranks[MemberId("worker-3"), 0] = replace(window(1, 0.09), **all_wait)  # type: ignore[arg-type]
    assert stragglers_cause.of(compare(ranks)[MemberId("worker-3"), 0]).kind == "unknown"


def test_a_pace_without_parts_has_no_known_cause() -> None:
    assert stragglers_cause.of(Lag(0.03, 0.01, 0.1, 0)).kind == "unknown"
