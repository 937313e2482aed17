"""A job that is switched off, or only observed: its worker processes are left alone, and known when it is on again."""

from __future__ import annotations

import pytest

from outrider.sidecar.core.actions import (
    Announce,
    Exit,
    FinishTrainer,
    ProbeNeighbour,
    StopWorkers,
    SweepProcesses,
)
from outrider.sidecar.core.events import (
    MasterConnected,
    MasterDisconnected,
    NeighbourProbed,
    TrainerEnded,
    WorkerExited,
    WorkersStarted,
)
from outrider.wire.ids import MemberId
from outrider.wire.messages.generation import Exited
from outrider.wire.messages.links import Neighbour
from outrider.wire.messages.membership import Hello, Refused, Welcome
from tests.unit.sidecar.core.play import (
    FIRST,
    Play,
    ended_well,
    killed,
    messages,
    none,
    only,
    start,
    stop,
)

OFF = Refused("job ns/train is switched off", 2.0, hands_off=True)
ON = Refused("job ns/train is supervised again", 0.0)
ONE = Neighbour(MemberId("worker-1"), "10.0.0.2", 9000)


def trains(neighbours: tuple[Neighbour, ...] = ()) -> Play:
    play = Play()
    play.ready()
    play.tell(start(1, FIRST, neighbours=neighbours), WorkersStarted(FIRST, (101, 102)))
    play.pass_time(0.1)
    play.tell(*(NeighbourProbed(each, True) for each in neighbours))  # who never answered is not missed
    return play


def test_a_member_that_is_switched_off_says_so_once_and_obeys_nothing_until_a_master_serves_it_again() -> None:
    play = trains()
    line = next(each for each in play.said(OFF) if isinstance(each, Announce) and each.kind == "HandsOff")
    assert "is switched off" in line.reason
    assert not [each for each in play.said(OFF) if isinstance(each, Announce) and each.kind == "HandsOff"]
    assert play.tell(stop(2, FIRST)) == []
    hello = only(play.said(ON) + play.pass_time(0.01), Hello)
    assert hello.running == FIRST, "the master that takes over learns what runs"
    assert none(play.said(Welcome(1)), StopWorkers)
    assert only(play.tell(stop(3, FIRST)), StopWorkers).generation == FIRST


@pytest.mark.parametrize("told", [OFF, Welcome(1, hands_off=True)])
def test_a_member_that_is_left_alone_is_cut_off_and_trains_on(told: Refused | Welcome) -> None:
    play = trains((ONE,))
    assert not none(play.pass_time(20), StopWorkers), "else this test shows nothing: supervised, it stops itself"
    play = trains((ONE,))
    play.said(told)
    play.tell(MasterDisconnected())
    actions = play.pass_time(1000)
    assert none(actions, StopWorkers)
    assert none(actions, ProbeNeighbour)


def test_an_unanswered_start_is_left_alone_too() -> None:
    play = Play()
    play.ready()
    play.tell(start(1, FIRST))
    play.said(OFF)
    actions = play.pass_time(1000)
    assert none(actions, StopWorkers)
    assert none(actions, SweepProcesses)


def test_a_rank_that_dies_costs_the_others_nothing_and_the_master_learns_of_it_when_it_is_on_again() -> None:
    play = trains()
    play.said(OFF)
    actions = play.tell(WorkerExited(FIRST, killed(1, 102)))
    assert [type(each) for each in actions] == [Announce]
    assert none(play.pass_time(1000), FinishTrainer)
    play.said(ON)
    told = only(play.said(Welcome(1)), Exited)
    assert (told.alive, [end.local_rank for end in told.exits]) == (1, [1])


@pytest.mark.parametrize(
    ("ends", "code"),
    [((killed(1, 102), ended_well(0, 101)), 137), ((ended_well(1, 102), ended_well(0, 101)), 0)],
)
def test_a_member_whose_ranks_have_all_ended_ends_with_the_code_of_the_first_that_failed(
    ends: tuple[object, ...], code: int
) -> None:
    play = trains()
    play.said(OFF)
    first, last = ends
    assert none(play.tell(WorkerExited(FIRST, first)), FinishTrainer)  # type: ignore[arg-type]
    order = only(play.tell(WorkerExited(FIRST, last)), FinishTrainer)  # type: ignore[arg-type]
    assert order.exit_code == code
    assert "is not supervised" in order.reason
    assert not none(play.tell(TrainerEnded(50)), Exit)


def test_ranks_that_had_ended_before_it_was_switched_off_are_seen_too() -> None:
    play = trains()
    play.tell(WorkerExited(FIRST, killed(0, 101)), WorkerExited(FIRST, killed(1, 102)))
    assert only(play.said(OFF), FinishTrainer).exit_code == 137


def test_the_link_breaks_and_a_master_that_does_not_know_the_job_yet_changes_nothing() -> None:
    play = trains((ONE,))
    play.said(OFF)
    play.tell(MasterDisconnected(), MasterConnected())
    play.said(Refused("this master has no job 'ns/train' (yet)", 2.0))
    assert none(play.pass_time(100), StopWorkers)
    assert any(each.kind == "Supervised" for each in play.said(Welcome(2)) if isinstance(each, Announce))
    assert any(isinstance(each, Hello) for each in messages(play.tell(MasterDisconnected(), MasterConnected())))
