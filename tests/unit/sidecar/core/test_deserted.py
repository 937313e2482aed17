"""A member whose worker processes have all ended with 0, and no master: it ends by itself after a while."""

from __future__ import annotations

from dataclasses import replace

from outrider.sidecar.core.actions import Announce, Exit, FinishTrainer
from outrider.sidecar.core.events import (
    MasterConnected,
    MasterDisconnected,
    MasterSaid,
    TrainerEnded,
    WorkerExited,
    WorkersStarted,
)
from outrider.wire.ids import OrderId
from outrider.wire.messages.membership import Finish, Refused, Welcome
from tests.unit.sidecar.core.play import BEGAN, FIRST, Play, ended_well, none, only, start, stop


def done(began: object = BEGAN) -> Play:
    play = Play()
    play.ready(began)  # type: ignore[arg-type]
    play.tell(start(1, FIRST), WorkersStarted(FIRST, (60, 61)))
    play.tell(WorkerExited(FIRST, ended_well(0, 60)), WorkerExited(FIRST, ended_well(1, 61)))
    return play


def test_who_is_done_and_finds_no_master_for_ten_minutes_finishes_with_0() -> None:
    play = done()
    play.tell(MasterDisconnected())
    assert none(play.pass_time(599), FinishTrainer)
    actions = play.pass_time(2)
    order = only(actions, FinishTrainer)
    assert order.exit_code == 0
    assert "no master has ordered this member to finish for 600 s" in order.reason
    assert only(actions, Announce).reason == order.reason
    assert only(play.tell(TrainerEnded(50)), Exit).exit_code == 0


def test_the_time_is_a_setting() -> None:
    play = done(replace(BEGAN, done_after=5.0))
    play.tell(MasterDisconnected())
    assert none(play.pass_time(4), FinishTrainer)
    assert only(play.pass_time(2), FinishTrainer).exit_code == 0


def test_a_master_that_is_there_may_take_its_time() -> None:
    assert none(done().pass_time(3600), FinishTrainer)


def test_a_master_that_comes_back_in_time_ends_the_wait_and_the_next_loss_begins_another() -> None:
    play = done()
    play.tell(MasterDisconnected())
    play.pass_time(590)
    play.tell(MasterConnected(), MasterSaid(Welcome(2)))
    assert none(play.pass_time(3600), FinishTrainer)
    play.tell(MasterDisconnected())
    assert none(play.pass_time(599), FinishTrainer)
    play.tell(MasterConnected(), MasterSaid(Welcome(2)))
    assert only(play.said(Finish(OrderId(9), 3, "the job has failed")), FinishTrainer).exit_code == 3


def test_a_master_that_does_not_serve_the_member_is_none() -> None:
    play = done()
    play.tell(MasterDisconnected(), MasterConnected())
    play.said(Refused("this master has no job 'job' (yet)", 1.0))
    assert only(play.pass_time(601), FinishTrainer).exit_code == 0


def test_who_is_stopped_meanwhile_waits_for_the_next_generation() -> None:
    play = done()
    play.said(stop(2, FIRST).message)  # type: ignore[arg-type]
    play.tell(MasterDisconnected())
    assert none(play.pass_time(3600), FinishTrainer)
