"""Matching lines are sent at once, and to each master that welcomes the member, until the next generation."""

from __future__ import annotations

from outrider.sidecar.core.events import (
    HookSaid,
    MasterConnected,
    MasterDisconnected,
    MasterSaid,
    PatternMet,
    PortFound,
    WorkersStarted,
    WorkersStopped,
)
from outrider.wire.messages.log_lines import LineMatched, PatternDropped
from outrider.wire.messages.membership import Welcome
from tests.unit.sidecar.core.play import FIRST, SECOND, Play, none, only, start, stop

SAID = LineMatched(FIRST, 1, "ECC", "uncorrectable ECC error", 70)


def trains() -> Play:
    play = Play()
    play.ready()
    play.tell(start(1, FIRST), WorkersStarted(FIRST, (7, 8)))
    return play


def welcome(play: Play) -> list[LineMatched]:
    play.tell(MasterConnected())
    actions = play.said(Welcome(1))
    return [a.message for a in actions if isinstance(getattr(a, "message", None), LineMatched)]  # type: ignore[union-attr]


def test_a_match_is_sent_at_once_with_its_age() -> None:
    play = trains()
    said = only(play.tell(PatternMet(SAID, play.now - 0.99)), LineMatched)
    assert (said.line, said.serial, round(said.age, 3)) == (SAID.line, 70, 1.0)


def test_a_match_is_sent_again_over_a_new_link_with_the_same_serial() -> None:
    play = trains()
    play.tell(PatternMet(SAID, play.now), MasterDisconnected())
    (again,) = welcome(play)
    assert (again.serial, again.count) == (70, 1)


def test_what_came_while_there_was_no_master_is_counted_together() -> None:
    play = trains()
    play.tell(PatternMet(SAID, play.now), MasterDisconnected())
    for serial in (71, 72):
        actions = play.tell(PatternMet(LineMatched(FIRST, 1, "ECC", f"line {serial}", serial, 2), play.now))
        assert none(actions, LineMatched)
    play.tell(PatternMet(LineMatched(FIRST, 0, "ECC", "rank 0", 60), play.now))
    first, second = welcome(play)
    assert (first.rank, second.rank) == (0, 1)
    assert (second.line, second.serial, second.count) == ("line 72", 72, 4)


def test_a_new_generation_forgets_the_lines_of_the_old_one() -> None:
    play = trains()
    play.tell(PatternMet(SAID, play.now))
    play.tell(stop(2, FIRST), WorkersStopped(FIRST), PortFound(2001), start(3, SECOND), WorkersStarted(SECOND, (9, 10)))
    play.tell(MasterDisconnected())
    assert welcome(play) == []


def test_a_dropped_pattern_is_reported_to_each_master() -> None:
    play = trains()
    dropped = PatternDropped(FIRST, "(a+)+$", "too slow", "aaab")
    assert only(play.tell(HookSaid(dropped)), PatternDropped) == dropped
    play.tell(MasterDisconnected(), MasterConnected())
    assert only(play.tell(MasterSaid(Welcome(1))), PatternDropped) == dropped
