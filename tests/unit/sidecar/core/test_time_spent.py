"""When a sidecar sends what its first rank has spent its time on, and how old it is by then."""

from __future__ import annotations

import pytest

from outrider.sidecar.core.events import PagesRead, WorkerExited, WorkersStarted, WorkersStopped
from outrider.wire.messages.generation import Exited, Stopped, WorkerExit
from outrider.wire.messages.report import RankProgress, Report, Spent
from tests.unit.sidecar.core.play import FIRST, Play, messages, start, stop

PAGES = PagesRead(FIRST, (RankProgress(0, 5, 0.1, "step"),), (), Spent(10.0, 8.0, 0.1, checkpoint=1.5))


def training(members: int) -> Play:
    play = Play()
    play.ready()
    play.tell(start(1, FIRST, members=members), WorkersStarted(FIRST, (101, 102)))
    play.without_pages()
    return play


def reports(play: Play, seconds: int) -> list[Spent | None]:
    found: list[Spent | None] = []
    for _ in range(seconds):
        play.tell(PAGES)
        found += [each.spent for each in messages(play.pass_time(1)) if isinstance(each, Report)]
    return found


def test_every_report_of_a_small_job_has_it() -> None:
    found = reports(training(2), 6)
    assert len(found) >= 5
    assert all(spent is not None and spent.checkpoint == 1.5 for spent in found)


def test_every_tenth_report_of_a_large_job_has_it() -> None:
    found = reports(training(1000), 40)
    assert 3 <= len([spent for spent in found if spent is not None]) <= 5


def test_the_end_of_the_first_rank_brings_the_last_word_of_it() -> None:
    play = training(2)
    ended = WorkerExited(FIRST, WorkerExit(0, 101, 1), Spent(12.0, 10.0, 0.3))
    (message,) = [each for each in messages(play.tell(ended)) if isinstance(each, Exited)]
    assert message.spent == Spent(12.0, 10.0, 0.3)


def test_another_rank_says_nothing_of_the_first_one() -> None:
    play = training(2)
    (message,) = [
        each for each in messages(play.tell(WorkerExited(FIRST, WorkerExit(1, 102, 1)))) if isinstance(each, Exited)
    ]
    assert message.spent is None


def test_what_was_read_a_while_ago_is_as_old_as_it_is_when_it_is_sent() -> None:
    play = training(2)
    play.tell(PAGES, stop(7, FIRST))
    play.pass_time(4)
    (message,) = [each for each in messages(play.tell(WorkersStopped(FIRST, 0))) if isinstance(each, Stopped)]
    assert message.spent is not None
    assert (message.spent.age, message.spent.since_first_step) == pytest.approx((14.0, 12.0), abs=0.2)
    assert message.spent.checkpoint == 1.5
