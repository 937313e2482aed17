"""A window of steps in the hook: armed, marked and written to the page, without torch."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import pytest

from training_hooks.abi import progress_page
from training_hooks.telemetry import busy_time, cpu_contention, step_counter


class Optimizer:
    pass


class Training:
    """Steps made by hand, and a recorder with a collective in each of them."""

    def __init__(self, watched: Any) -> None:
        self.watched, self.optimizer = watched, Optimizer()
        self.count = step_counter.hook(watched)
        self.entries: list[dict[str, Any]] = []

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.entries.append({"time_created_ns": time.time_ns(), "profiling_name": "gloo:all_reduce"})
            self.count(self.optimizer, (), {})

    def window(self, first: int, count: int) -> None:
        self.watched.sampler._arm(first, count)
        self.step(
            first + count - self.watched.page.words[progress_page.STEPS] + self.watched.page.words[progress_page.BASE]
        )

    def look(self) -> None:
        self.watched.sampler.look(lambda: self.entries)


def numbers(watched: Any) -> tuple[int, ...]:
    """Sequence, first step, source, steps, gap, busy, step."""
    sequence, first, source, *times = struct.unpack_from("<6Q", watched.page.map, 8 * progress_page.WINDOW)
    return sequence, first, source & 0xFFFFFFFF, source >> 32, *times


def test_a_window_of_steps_is_put_on_the_page(watched: Any) -> None:
    training = Training(watched)
    training.step(3)
    training.window(8, 4)
    assert watched.sampler.whole is not None
    assert not watched.sampler.armed
    training.look()
    sequence, first, source, counted, gap, busy, step = numbers(watched)
    assert (sequence % 2, first, source, counted) == (0, 8, busy_time.RECORDER_AND_CPU, 4)
    assert 0 < gap <= step
    assert 0 < busy <= step


def test_windows_of_long_steps_follow_each_other_without_a_break(watched: Any) -> None:
    training, sampler = Training(watched), watched.sampler
    training.step(2)
    sampler.step_seconds = 2.5
    assert (busy_time.stride(2.5), busy_time.count(busy_time.stride(2.5))) == (4, 4)
    training.window(4, 4)
    training.look()
    sampler.step_seconds = 2.5
    assert (numbers(watched)[1], sampler.armed, sampler.first) == (4, True, 8)
    training.step(4)
    training.look()
    assert (numbers(watched)[1], numbers(watched)[3]) == (8, 4)


def test_a_step_that_is_not_armed_goes_by_the_sampler(watched: Any) -> None:
    training = Training(watched)
    training.step(20)
    assert watched.sampler.marks == []


def test_a_window_whose_first_step_has_passed_is_dropped(watched: Any) -> None:
    training = Training(watched)
    training.step(10)
    watched.sampler._arm(8, 4)
    training.step()
    assert not watched.sampler.armed
    training.step(8)
    training.look()
    assert numbers(watched)[0] == 0


def test_steps_are_counted_from_the_beginning_of_the_process_so_that_ranks_agree_after_a_load(watched: Any) -> None:
    watched.known.saved("/x/a.pt", 1000)
    watched.loaded("/x/a.pt")
    training = Training(watched)
    training.step(2)
    training.window(4, 3)
    training.look()
    assert numbers(watched)[1] == 4


@pytest.mark.parametrize("what", ["save", "evaluation"])
def test_a_step_with_a_checkpoint_or_an_evaluation_is_left_out(watched: Any, what: str) -> None:
    training = Training(watched)
    training.step(2)
    watched.sampler._arm(4, 8)
    training.step(4)
    if what == "save":
        watched.begin_save()
        watched.end_save(True)
    else:
        watched.evaluates()
    training.step(8)
    training.look()
    assert numbers(watched)[3] == 7


def test_waiting_for_a_batch_is_counted_in_the_training_s_thread(watched: Any) -> None:
    training, sampler = Training(watched), watched.sampler
    training.step(2)
    sampler._arm(4, 3)
    training.step(2)
    before = time.monotonic_ns()
    assert sampler.wait(lambda: (time.sleep(0.01), "batch")[1]) == "batch"
    took = time.monotonic_ns() - before
    training.step(3)
    assert 0 < sampler.marks[1].waited <= took
    assert sampler.marks[2].waited == 0


def test_an_exception_of_a_data_loader_reaches_the_script(watched: Any) -> None:
    training = Training(watched)
    training.step(2)
    watched.sampler._arm(4, 3)
    training.step(2)
    with pytest.raises(StopIteration):
        watched.sampler.wait(lambda: next(iter(())))


def test_without_a_recorder_the_cpu_time_is_the_source(watched: Any) -> None:
    training = Training(watched)
    training.step(2)
    training.window(4, 3)
    watched.sampler.look(lambda: [])
    assert numbers(watched)[2] == busy_time.CPU


def test_a_recorder_that_fails_loses_one_window_only(watched: Any) -> None:
    training, sampler = Training(watched), watched.sampler
    training.step(2)
    training.window(4, 3)
    with pytest.raises(KeyError):
        sampler.look(lambda: [{"another": "version"}])
    training.window(8, 3)
    training.look()
    assert numbers(watched)[1] == 8


def test_the_next_window_is_looked_for_only_while_steps_are_made(watched: Any) -> None:
    training, sampler = Training(watched), watched.sampler
    assert sampler._next()[0] is None
    training.step(3)
    assert sampler._next()[0] is not None
    watched.evaluates()
    assert sampler._next()[0] is None


def test_after_steps_have_become_long_the_next_window_comes_in_fewer_steps(watched: Any) -> None:
    training, sampler, words = Training(watched), watched.sampler, watched.page.words
    training.step(3)
    training.window(8, 4)
    training.look()
    sampler.step_seconds = 0.01
    training.step(8)
    assert sampler._next()[1] == busy_time.stride(0.01) == 1024
    words[progress_page.LAST] = sampler._behind[1] + 8 * 10**9
    assert sampler._next()[1:] == (24, busy_time.count(8)), "steps of a second"


def test_throttling_is_read_from_either_version_of_cgroups() -> None:
    assert cpu_contention.throttled_ns("nr_periods 5\nnr_throttled 2\nthrottled_time 4000\n") == 4000
    assert cpu_contention.throttled_ns("usage_usec 9\nnr_throttled 2\nthrottled_usec 4\n") == 4000
    assert cpu_contention.throttled_ns("usage_usec 9\n") is None
    assert cpu_contention.throttled_ns("throttled_usec many\n") is None


@pytest.mark.parametrize(
    ("after", "took"),
    [
        ((0, 500, 500, 900), 0),  # neighbours of the container alone made it wait
        ((0, 900, 500, 900), 400),  # others of its container used 400
        ((300, 900, 500, 900), 700),
        ((300, 900, 500, 200), 200),  # it has waited no longer
    ],
)
def test_time_lost_to_the_own_container_excludes_its_neighbours(after: tuple[int, int, int, int], took: int) -> None:
    assert cpu_contention.Container.took_ns((0, 0, 0, 0), after) == took


def test_the_used_time_of_a_group_is_read_from_either_version(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 9\nuser_usec 4\n")
    assert cpu_contention.used_ns(str(tmp_path / "cpu.stat")) == 9000
    (tmp_path / "cpu.stat").write_text("nr_periods 0\nthrottled_time 0\n")
    assert cpu_contention.used_ns(str(tmp_path / "cpu.stat")) == 0
    (tmp_path / "cpuacct.usage").write_text("9000\n")
    assert cpu_contention.used_ns(str(tmp_path / "cpu.stat")) == 9000


def test_shares_of_throttled_and_stolen_time_are_between_none_and_all() -> None:
    since = cpu_contention.Pressure.since
    assert since((0, 0, (0, 0)), (500, 900, (5, 20)), 1000) == (0.5, 0.25)
    assert since((0, 0, (0, 0)), (5000, 5000, (0, 0)), 1000) == (1.0, 0.0)
    assert since((10, 10, (9, 9)), (0, 0, (0, 20)), 1000) == (0.0, 0.0)
    assert cpu_contention.stolen_share("cpu  1 1 1 1 1 1 1 3 0 0\ncpu0 …") == (3, 10)
    assert cpu_contention.stolen_share("") == (0, 0)


def test_a_limit_counts_only_as_far_as_it_stops_threads_of_this_process() -> None:
    """It does not count if it stops only a DataLoader's workers."""
    assert cpu_contention.Pressure.since((0, 0, (0, 0)), (500, 200, (0, 0)), 1000) == (0.2, 0.0)
    before = cpu_contention.waited_ns()
    assert 0 <= before <= cpu_contention.waited_ns()
