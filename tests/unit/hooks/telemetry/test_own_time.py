"""The busy time of a rank in a window of steps, from given times."""

from __future__ import annotations

from typing import Any

import pytest

from training_hooks.telemetry import busy_time
from training_hooks.telemetry.busy_time import Mark, measure

MS = 10**6


def marks(steps: int, step: int, cpu: int = 0, delay: int = 0, waited: int = 0, spoiled: tuple[int, ...] = ()) -> Any:
    return [
        Mark(n * step * MS, n * cpu * MS, n * delay * MS, waited * MS if n else 0, n in spoiled, [])
        for n in range(steps + 1)
    ]


def created(steps: int, step: int, *after: int, name: str = "gloo:all_reduce") -> list[tuple[int, str]]:
    """The same collectives in every step, so many milliseconds after its beginning; one before all of them."""
    return [(-1, name)] + [((n * step + each) * MS, name) for n in range(steps) for each in after]


def test_a_rank_that_is_late_to_its_first_collective_was_busy_by_itself() -> None:
    late = measure(marks(8, 100, cpu=5), created(8, 100, 60, 90), beside_gpu=False)
    waits = measure(marks(8, 100, cpu=5), created(8, 100, 1, 90), beside_gpu=False)
    assert (late.gap, waits.gap, late.busy, waits.busy) == (60 * MS, MS, 5 * MS, 5 * MS)
    assert (late.step, late.steps) == (100 * MS, 8)


def test_with_two_optimizers_the_gap_begins_after_either() -> None:
    """A GAN whose generator is followed, and whose data is loaded after the discriminator's step."""
    with_others = [mark._replace(ends=[mark.at - 70 * MS]) for mark in marks(8, 100)]
    found = measure(with_others, created(8, 100, 2, 80), beside_gpu=False)
    assert found.gap == 2 * MS + 50 * MS


def test_with_a_collective_at_the_beginning_the_main_threads_time_counts() -> None:
    found = measure(marks(8, 100, cpu=40, delay=20, waited=10), created(8, 100, 1), beside_gpu=False)
    assert (found.source, found.gap, found.busy) == (busy_time.RECORDER_AND_CPU, MS, 70 * MS)
    assert (found.cpu, found.delayed, found.waited) == (40 * MS, 20 * MS, 10 * MS)


def test_a_limit_that_stops_the_container_in_every_third_step_counts_by_its_mean() -> None:
    """The median alone would not show it."""
    stalls = [0, 60, 60, 60, 120, 120, 120, 180, 180]
    seen = [mark._replace(delay=stalls[n] * MS) for n, mark in enumerate(marks(8, 100, cpu=20))]
    found = measure(seen, created(8, 100, 1), beside_gpu=False, throttled=0.225)
    assert (found.busy, found.throttled, found.delayed) == (42.5 * MS, 22.5 * MS, 0)
    assert measure(seen, created(8, 100, 1), beside_gpu=False).busy == 20 * MS


def test_a_limit_visible_in_every_step_counts_once() -> None:
    found = measure(marks(8, 100, cpu=20, delay=30), created(8, 100, 1), beside_gpu=False, throttled=0.3)
    assert found.busy == 50 * MS


def test_beside_a_gpu_the_recorder_alone_counts_because_the_main_thread_may_spin() -> None:
    found = measure(marks(8, 100, cpu=100), created(8, 100, 30), beside_gpu=True)
    assert (found.source, found.gap, found.busy) == (busy_time.RECORDER, 30 * MS, 0)


def test_a_backend_that_may_spin_is_treated_like_a_gpu() -> None:
    found = measure(marks(8, 100, cpu=100), created(8, 100, 30, name="mpi:all_reduce"), beside_gpu=False)
    assert (found.source, found.gap, found.busy) == (busy_time.RECORDER, 30 * MS, 0)


def test_without_a_recorder_the_cpu_time_counts_and_beside_a_gpu_nothing_does() -> None:
    assert measure(marks(8, 100, cpu=40), [], beside_gpu=False)[:5] == (busy_time.CPU, 8, 0, 40 * MS, 100 * MS)
    assert measure(marks(8, 100, cpu=40), [], beside_gpu=True)[:5] == (busy_time.NOTHING, 8, 0, 0, 100 * MS)


def test_steps_with_a_checkpoint_are_left_out_and_too_few_others_are_no_window() -> None:
    slow = marks(8, 100, cpu=5)
    found = measure([m._replace(spoiled=n in (2, 3)) for n, m in enumerate(slow)], created(8, 100, 30), False)
    assert found.steps == 6
    assert measure([m._replace(spoiled=n > 3) for n, m in enumerate(slow)], created(8, 100, 30), False) is None


def test_steps_that_the_recorder_no_longer_has_are_left_out() -> None:
    entries = [each for each in created(8, 100, 30) if each[0] > 150 * MS]
    found = measure(marks(8, 100), entries, beside_gpu=False)
    assert (found.steps, found.gap) == (5, 30 * MS)


def test_a_step_without_a_collective_is_entirely_the_rank_s_own() -> None:
    assert measure(marks(8, 100), [(-1, "gloo:barrier")], beside_gpu=False).gap == 100 * MS


def test_one_long_step_of_eight_changes_nothing() -> None:
    entries = created(8, 100, 30)
    entries[3] = (entries[3][0] + 60 * MS, entries[3][1])
    assert measure(marks(8, 100), entries, beside_gpu=False).gap == 30 * MS


def test_a_clock_that_goes_backwards_is_no_window() -> None:
    assert measure(list(reversed(marks(8, 100))), created(8, 100, 30), beside_gpu=False) is None


def test_only_ranks_that_call_the_same_collectives_have_the_same_shape() -> None:
    first = measure(marks(8, 100), created(8, 100, 10, 20), False)
    again = measure(marks(8, 100), created(8, 100, 30, 90), False)
    other = measure(marks(8, 100), created(8, 100, 10), False)
    assert first.shape == again.shape != other.shape


@pytest.mark.parametrize("seconds", [1e-5, 0.001, 0.0137, 0.3, 1.0, 1.9, 4.0, 60.0, 3600.0])
def test_windows_of_ranks_that_differ_a_little_meet_at_every_second_one_at_least(seconds: float) -> None:
    one, other = busy_time.stride(seconds), busy_time.stride(seconds * 1.3)
    assert max(one, other) in (min(one, other), 2 * min(one, other))
    assert busy_time.count(one) <= one


def test_windows_come_every_seven_to_fifteen_seconds_where_steps_are_short() -> None:
    for seconds in (0.001, 0.0137, 0.3, 1.0, 1.8):
        assert 7.0 < busy_time.stride(seconds) * seconds <= 15.0
