"""What a rank keeps of its time, as the sidecar reads it off the page."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from outrider.sidecar.shell.progress_pages import PageReader
from outrider.wire.ids import Generation
from outrider.wire.messages.report import Spent
from training_hooks.abi import progress_page as pages


class Clock:
    """Time that passes only if a test says so."""

    def __init__(self) -> None:
        self.now = time.monotonic_ns()

    def __call__(self) -> int:
        return self.now

    def run(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


@pytest.fixture
def clock(watched: Any, monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic_ns", found)
    for index in (pages.BORN, pages.IMPORTED, pages.DOING_SINCE):
        watched.page.words[index] = found.now
    return found


def read(watched: Any) -> Spent:
    spent = PageReader(Path(watched.volume)).spent(Generation(1, 1), 0)
    assert spent is not None
    return spent


def step(watched: Any, clock: Clock, seconds: float) -> None:
    clock.run(seconds)
    watched.stepped(watched.page.words[pages.STEPS] + 1)
    words = watched.page.words
    watched.page.set((pages.STEPS, words[pages.STEPS] + 1), (pages.BEFORE, words[pages.LAST]), (pages.LAST, clock.now))


def test_imports_end_with_the_last_module_that_was_looked_for(watched: Any, clock: Clock) -> None:
    clock.run(2)
    with pytest.raises(ImportError):
        __import__("no_such_module_of_the_script")
    clock.run(3)
    assert (read(watched).doing, read(watched).importing) == ("importing", 0.0)
    before = watched.spent.enter(pages.RENDEZVOUS)
    clock.run(1)
    assert (read(watched).doing, read(watched).doing_for) == ("rendezvous", pytest.approx(1))
    watched.spent.leave(before)
    spent = read(watched)
    assert (spent.importing, spent.rendezvous, spent.doing) == (pytest.approx(2), pytest.approx(1), "")
    assert (spent.age, spent.since_first_step) == (pytest.approx(6), -1.0)


def test_no_finder_is_left_once_the_imports_are_over(watched: Any, clock: Clock) -> None:
    watched.spent.enter(pages.LOADING)
    assert watched.spent._imports not in sys.meta_path


def test_a_save_counts_as_long_as_it_holds_up_the_main_thread(watched: Any, clock: Clock) -> None:
    step(watched, clock, 1)
    watched.begin_save()
    watched.begin_save()
    clock.run(2)
    watched.end_save(True)
    assert (read(watched).doing, read(watched).checkpoint) == ("checkpoint", 0.0)
    watched.end_save(True)
    assert read(watched).checkpoint == pytest.approx(2)


def test_a_save_in_another_thread_stalls_nothing(watched: Any, clock: Clock) -> None:
    step(watched, clock, 1)

    def save() -> None:
        watched.begin_save()
        clock.run(5)
        watched.end_save(True)

    thread = threading.Thread(target=save)
    thread.start()
    thread.join()
    assert (read(watched).checkpoint, read(watched).doing) == (0.0, "")


def test_a_save_within_an_evaluation_is_a_save(watched: Any, clock: Clock) -> None:
    step(watched, clock, 1)
    watched.evaluates()
    clock.run(3)
    watched.begin_save()
    clock.run(1)
    watched.end_save(True)
    clock.run(2)
    watched.spent.evaluated()
    spent = read(watched)
    assert (spent.evaluation, spent.checkpoint) == (pytest.approx(5), pytest.approx(1))


def test_an_evaluation_that_is_never_ended_ends_with_the_next_step_less_a_step(watched: Any, clock: Clock) -> None:
    for _ in range(3):
        step(watched, clock, 0.5)
    watched.evaluates()
    clock.run(4)
    step(watched, clock, 0.5)
    assert read(watched).evaluation == pytest.approx(4)


def test_waiting_for_a_batch_counts_from_the_first_step_on(watched: Any, clock: Clock) -> None:
    assert watched.spent.waits_for_data() is None
    step(watched, clock, 1)
    before = watched.spent.waits_for_data()
    clock.run(0.25)
    watched.spent.leave(before)
    assert read(watched).data == pytest.approx(0.25)
    clock.run(0.5)
    assert read(watched).step_age == pytest.approx(0.5), "since the step or the later activity ended"


def test_a_batch_of_an_evaluation_belongs_to_the_evaluation(watched: Any, clock: Clock) -> None:
    step(watched, clock, 1)
    watched.evaluates()
    assert watched.spent.waits_for_data() is None


def test_a_page_of_older_hooks_says_nothing(watched: Any) -> None:
    watched.page.words[pages.BORN] = 0
    assert PageReader(Path(watched.volume)).spent(Generation(1, 1), 0) is None


def test_a_page_with_nonsense_makes_a_message_that_can_be_sent(watched: Any) -> None:
    for index in range(pages.TIMES, pages.SPENT + 7):
        watched.page.words[index] = (1 << 64) - 1
    spent = read(watched)
    assert (spent.doing, spent.age) == ("", 0.0)


def test_the_age_is_that_of_the_process_even_if_the_hooks_came_later(watched: Any) -> None:
    with open("/proc/self/stat", "rb") as file:
        began = int(file.read().rpartition(b")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - began / 100
    assert read(watched).age == pytest.approx(age, abs=60)
