"""Reports of ranks on their data: each is logged; the master gets those of rank 0, and warnings."""

from __future__ import annotations

from dataclasses import replace

from outrider.sidecar.core.actions import Action, Announce, Send
from outrider.sidecar.core.environment import common
from outrider.sidecar.core.events import (
    DataTold,
    MasterConnected,
    MasterDisconnected,
    PortFound,
    WorkersStarted,
    WorkersStopped,
)
from outrider.wire.messages.data_position import DataSaid
from outrider.wire.messages.generation import Start
from outrider.wire.messages.membership import Welcome
from tests.unit.sidecar.core.play import FIRST, SECOND, Play, start, stop

LOADED = DataSaid(FIRST, 0, "loaded", "rank 0 goes on")


def trains() -> Play:
    play = Play()
    play.ready()
    play.tell(start(1, FIRST), WorkersStarted(FIRST, (7, 8)))
    return play


def told(actions: list[Action]) -> list[DataSaid]:
    return [a.message for a in actions if isinstance(a, Send) and isinstance(a.message, DataSaid)]


def test_a_report_of_rank_0_is_logged_and_sent() -> None:
    actions = trains().tell(DataTold(LOADED, 0, (("left", "33"),)))
    line = next(action for action in actions if isinstance(action, Announce))
    assert (line.kind, line.reason, line.detail) == ("DataPositionLoaded", "rank 0 goes on", (("left", "33"),))
    assert told(actions) == [LOADED]


def test_of_other_ranks_the_master_hears_the_first_warning_of_a_member_alone() -> None:
    play = trains()
    for rank, warning, count in ((5, False, 0), (5, True, 0), (4, True, 1)):
        said = DataSaid(FIRST, rank, "ignored", "why", warning)
        actions = play.tell(DataTold(said, rank - 4))
        assert [a.reason for a in actions if isinstance(a, Announce)] == ["why"]
        assert len(told(actions)) == count


def test_of_other_members_the_master_hears_that_saves_are_whole_again() -> None:
    play = trains()
    for rank, count in ((5, 0), (4, 1)):
        actions = play.tell(DataTold(DataSaid(FIRST, rank, "atomic", "whole again"), rank - 4))
        assert len(told(actions)) == count


def test_a_new_link_hears_it_again_and_a_new_generation_forgets_it() -> None:
    play = trains()
    play.tell(DataTold(LOADED, 0), MasterDisconnected(), MasterConnected())
    assert told(play.said(Welcome(1))) == [LOADED]
    play.tell(stop(2, FIRST), WorkersStopped(FIRST), PortFound(2001), start(3, SECOND), WorkersStarted(SECOND, (9, 10)))
    assert told(play.tell(DataTold(LOADED, 0))) == [], "of a generation that is over"
    play.tell(MasterDisconnected(), MasterConnected())
    assert told(play.said(Welcome(1))) == []


def test_ranks_learn_by_their_environment_what_is_asked_of_their_data() -> None:
    names = ("OUTRIDER_ELASTIC_DATA", "OUTRIDER_KEEP_GLOBAL_BATCH")
    order = start(1, FIRST).message
    assert isinstance(order, Start)
    assert not any(name in common(order) for name in names)
    asked = common(replace(order, elastic_data=True, keep_batch_of=4))
    assert [asked[name] for name in names] == ["1", "4"]
