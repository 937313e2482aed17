"""How many members a job should have: what the search does with a noisy curve."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outrider.master.core.scaling import size_policy
from outrider.master.core.scaling.size_policy import Decision, Limits, Policy
from outrider.master.core.state.scaling import Rate, Search

NOISE = 0.1
MOST_SAMPLES = Policy(min_gain=0.0, cooldown=0.0)
Curve = Callable[[int], float]


def linear(size: int) -> float:
    return 100.0 * size


def flat_from_four(size: int) -> float:
    return 100.0 * min(size, 4)


def peaked_at_six(size: int) -> float:
    return 100.0 * size / (1 + (size / 6) ** 2)


class Played:
    """A job whose throughput follows a curve, measured in windows of five steps."""

    def __init__(self, curve: Curve, limits: Limits, size: int, policy: Policy = MOST_SAMPLES) -> None:
        self.curve, self.limits, self.size, self.policy = curve, limits, size, policy
        self.search, self.now, self.sizes, self.steps = Search(), 0.0, [size], [0]
        self.decision = Decision(size, "", "")

    def window(self, steps: int = 5) -> Decision:
        self.now += steps * self.size / self.curve(self.size)
        rate = Rate(self.curve(self.size), size_policy.error_of(NOISE, steps), steps, self.now)
        size_policy.measured(self.search, self.size, rate)
        self.steps[-1] += steps
        self.decision = size_policy.decide(self.search, self.size, self.limits, self.policy, self.now)
        if self.decision.size != self.size:
            self.size = self.decision.size
            self.sizes.append(self.size)
            self.steps.append(0)
        return self.decision

    def settle(self) -> Played:
        while self.search.settled is None:
            self.window()
        return self


def test_a_linear_job_grows_to_the_most_by_doubling() -> None:
    played = Played(linear, Limits(1, 10), 1).settle()
    assert played.sizes == [1, 2, 4, 8, 10]
    assert played.decision.condition == size_policy.MAX_REPLICAS


def test_one_that_gains_nothing_from_more_members_goes_back() -> None:
    played = Played(flat_from_four, Limits(1, 16), 1, Policy(cooldown=0.0)).settle()
    assert played.sizes[:4] == [1, 2, 4, 8]
    assert played.size == 4
    assert played.decision.condition == size_policy.MAX_METRIC


def test_a_peak_between_the_doublings_is_found() -> None:
    assert Played(peaked_at_six, Limits(1, 16), 1).settle().size in (5, 6, 7)


def test_a_job_that_begins_too_large_shrinks() -> None:
    assert Played(peaked_at_six, Limits(1, 16), 16).settle().size in (5, 6, 7)


@pytest.mark.parametrize("curve", [linear, flat_from_four, peaked_at_six])
def test_no_decision_takes_more_than_two_windows(curve: Curve) -> None:
    played = Played(curve, Limits(1, 16), 1).settle()
    assert max(played.steps) <= 2 * size_policy.WINDOW


def test_sizes_are_whole_units_within_the_limits() -> None:
    played = Played(linear, Limits(3, 13, 4), 4).settle()
    assert played.sizes == [4, 8, 12]


@pytest.mark.parametrize(("members", "size"), [(3, 4), (4, 4), (7, 4), (8, 8), (99, 12)])
def test_so_many_members_have_the_largest_whole_size_that_they_fill(members: int, size: int) -> None:
    assert Limits(3, 13, 4).within(members) == size


def test_a_minimal_gain_stops_growth_that_still_brings_something() -> None:
    def amdahl(size: int) -> float:
        return 100.0 / (0.2 + 0.8 / size)

    assert Played(amdahl, Limits(1, 16), 1).settle().size == 16
    assert Played(amdahl, Limits(1, 16), 1, Policy(min_gain=0.5, cooldown=0.0)).settle().size < 8


def test_within_the_cooldown_nothing_is_changed() -> None:
    played = Played(linear, Limits(1, 8), 1, Policy(cooldown=1000.0))
    played.search.changed = 0.0
    while played.now + 10 * played.size / played.curve(played.size) < 1000:
        assert played.window().size == 1
    assert "too recent" in played.decision.reason


def test_one_odd_window_is_no_change_and_two_are() -> None:
    played = Played(linear, Limits(1, 2), 1).settle()
    played.curve = lambda size: 30.0 * size
    played.window(20)
    assert played.search.settled is not None
    played.window(20)
    assert played.search.settled is None
    assert set(played.search.known) == {2}


def test_a_search_that_is_over_is_made_again_later_and_then_less_often() -> None:
    played = Played(flat_from_four, Limits(1, 16), 1, Policy(cooldown=0.0)).settle()
    first = size_policy.next_evaluation(played.search, played.policy)
    played.now = first
    played.window()
    assert played.size != 4, "a size beside it is tried again"
    played.settle()
    assert played.size == 4
    ended = played.search.settled
    assert ended is not None
    assert size_policy.next_evaluation(played.search, played.policy) - ended == 2 * played.policy.evaluation


def test_a_change_beside_the_best_size_starts_the_search_again() -> None:
    played = Played(flat_from_four, Limits(1, 16), 1, Policy(cooldown=0.0)).settle()
    played.curve = lambda size: 100.0 * (size if size > 4 else min(size, 4))
    played.now = size_policy.next_evaluation(played.search, played.policy)
    played.window()
    assert played.settle().size == 16


def test_the_reason_says_what_was_measured() -> None:
    played = Played(linear, Limits(1, 4), 1)
    while played.size == 1:
        played.window()
    assert played.decision == Decision(2, size_policy.CONTINUE, "1 member makes 100 samples/s: 2 members are tried.")
    played.settle()
    assert played.decision.reason == (
        "4 members make 400 samples/s and 2 make 200, so each additional member adds 1.00 of the throughput that one "
        "member has at size 2: the size stays."
    )
