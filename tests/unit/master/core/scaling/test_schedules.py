"""Sizes by schedule."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from outrider.master.core.events import ScaleRequested, ScalingAsked, SpecChanged
from outrider.master.core.scaling import schedule as scaling_schedule
from outrider.master.core.spec import Entry
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Play, job

OFFICE = (Entry("0 8 * * 1-5", 2), Entry("0 20 * * *", 4))
BEGAN = 1_700_000_000.0
"""The wall clock of a play at its 0: 2023-11-14T22:13:20Z, a Tuesday."""


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("now", "members", "next_at", "following"),
    [
        ("2026-11-23T07:59:59Z", 4, "2026-11-23T08:00:00Z", 2),
        ("2026-11-23T08:00:00Z", 2, "2026-11-23T20:00:00Z", 4),
        ("2026-11-21T12:00:00Z", 4, "2026-11-21T20:00:00Z", 4),
    ],
)
def test_the_entry_that_was_due_last_sets_the_size(now: str, members: int, next_at: str, following: int) -> None:
    due = scaling_schedule.due(OFFICE, "UTC", at(now))
    assert (due.members, due.next_at, due.next_members) == (members, at(next_at), following)


def test_hours_are_those_of_its_zone_in_summer_and_in_winter() -> None:
    summer = scaling_schedule.due(OFFICE, "Europe/Berlin", at("2026-07-01T06:00:00Z"))
    winter = scaling_schedule.due(OFFICE, "Europe/Berlin", at("2026-12-01T06:00:00Z"))
    assert (summer.members, winter.members) == (2, 4)
    assert winter.next_at == at("2026-12-01T07:00:00Z")


def test_of_entries_that_are_due_together_the_last_one_counts() -> None:
    due = scaling_schedule.due((Entry("0 8 * * *", 2), Entry("0 8 * * *", 3)), "UTC", at("2026-11-23T07:00:00Z"))
    assert (due.members, due.next_members) == (3, 3)


NEVER = Entry("0 0 */30 2 1#2", 1)
"""The first of February as its second Monday."""


def test_a_moment_that_never_comes_is_no_size() -> None:
    due = scaling_schedule.due((NEVER,), "UTC", at("2026-11-23T07:00:00Z"))
    assert (due.members, due.next_at) == (None, None)
    both = scaling_schedule.due((NEVER, *OFFICE), "UTC", at("2026-11-23T08:00:00Z"))
    assert (both.members, both.next_at) == (2, at("2026-11-23T20:00:00Z"))


# -- on the stage -----------------------------------------------------------------------------------------------------
def playing(*entries: Entry, **settings: object) -> Play:
    spec = replace(job(4, 1), replicas=3, scaling="schedule", schedule=entries, grow_patience=2.0)
    play = Play(replace(spec, **settings))  # type: ignore[arg-type]
    play.until(lambda: play.stage == "running")
    return play


def test_the_first_generation_has_the_size_of_the_schedule() -> None:
    play = playing(Entry("0 22 * * *", 2), Entry("30 22 * * *", 4))
    assert len(play.world) == 2
    assert [event.reason for event in play.announced("ScaleDecided")] == [
        "The schedule sets 2 members (0 22 * * *), and 4 from 2023-11-14T22:30:00.000Z on."
    ]


def test_the_size_changes_when_it_is_time_and_the_status_says_when_that_is() -> None:
    play = playing(Entry("0 22 * * *", 2), Entry("15 22 * * *", 4))
    play.run(15)
    assert play.saved is not None
    assert play.saved["scaling"]["next_evaluation"] == "2023-11-14T22:15:00.000Z"  # type: ignore[index]
    play.run(75)
    assert len(play.world) == 2
    play.until(lambda: len(play.world) == 4 and play.is_running(4), 60)
    assert play.now > 100


def test_a_user_who_scales_the_job_is_obeyed_until_the_schedule_is_resumed() -> None:
    play = playing(Entry("0 22 * * *", 2), Entry("15 22 * * *", 4))
    play.tell(ScaleRequested(1))
    play.run(300)
    assert len(play.world) == 1
    assert play.scaling()["last"] == 2
    play.tell(ScalingAsked())
    play.until(lambda: len(play.world) == 4, 60)


def test_an_edited_schedule_counts_at_once() -> None:
    play = playing(Entry("0 22 * * *", 2))
    play.tell(SpecChanged(replace(play.spec, replicas=2, schedule=(Entry("0 22 * * *", 1),))))
    play.until(lambda: len(play.world) == 1, 60)


def test_what_was_due_while_the_job_was_suspended_is_followed_when_it_is_resumed() -> None:
    play = playing(Entry("0 22 * * *", 2), Entry("15 22 * * *", 4))
    play.tell(SpecChanged(play.spec, suspended=True))
    play.run(300)
    play.tell(SpecChanged(play.spec))
    play.until(lambda: len(play.world) == 4, 60)


def test_the_next_master_follows_what_was_due_meanwhile() -> None:
    play = playing(Entry("0 22 * * *", 2), Entry("15 22 * * *", 4))
    later = successor(play, away=200)
    later.until(lambda: len(later.world) == 4, 120)


def test_without_room_it_goes_back_and_asks_again() -> None:
    play = playing(Entry("0 22 * * *", 2), Entry("15 22 * * *", 4))
    play.room = 2
    play.until(lambda: play.lacks_room_to_grow(), 300)
    assert len(play.world) == 2
    play.room = None
    play.until(lambda: len(play.world) == 4, 500)


def test_a_schedule_without_further_entries_leaves_the_size() -> None:
    play = playing(NEVER)
    play.run(60)
    assert len(play.world) == 3
    assert not play.announced("ScaleDecided")
    assert play.scaling()["next_evaluation"] is None


def test_room_that_is_found_sooner_is_used_as_the_schedule_says_then() -> None:
    play = playing(Entry("0 22 * * *", 2), Entry("15 22 * * *", 4))
    play.room = 2
    play.until(lambda: play.lacks_room_to_grow(), 300)
    play.room = None
    play.appears("worker-9", 2)
    play.appears("worker-10", 3)
    play.until(lambda: len(play.world) == 4 and play.is_running(4), 60)
    assert play.announced("ScaleDecided")[-1].reason.startswith("The schedule sets 4 members")
