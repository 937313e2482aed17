"""A round of the node check in one member: always answered, never twice at once, and its port is used up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.sidecar.core.actions import Announce, FindPort, FinishTrainer, RunCheck, StartWorkers
from outrider.sidecar.core.events import (
    HookDisconnected,
    HookSaid,
    MasterConnected,
    MasterSaid,
    PortFound,
    TrainerEnded,
)
from outrider.wire.ids import MemberId, OrderId
from outrider.wire.messages.generation import Ready
from outrider.wire.messages.membership import Finish, Welcome
from outrider.wire.messages.node_check import Check, Checked, CheckPeer, PeerCheck
from tests.unit.sidecar.core.play import FIRST, Play, none, only, start, template

ORDER = Check(OrderId(5), 0, 2000, awaited=(MemberId("worker-1"),))
ANSWER = Checked(OrderId(5), 0, "ok", kind="numpy", compute=0.05, cpu=0.05, elapsed=0.3)


def asked(order: Check = ORDER) -> Play:
    play = Play()
    play.ready()
    run = only(play.said(order), RunCheck)
    assert (run.connection, run.nproc, run.order) == ("c1", 2, order)
    return play


def test_the_result_of_the_probe_is_sent_and_another_port_offered() -> None:
    play = asked()
    actions = play.tell(HookSaid(ANSWER))
    assert only(actions, Checked) == ANSWER
    assert only(actions, FindPort)
    assert only(play.tell(PortFound(2001)), Ready).port == 2001


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (
            replace(ANSWER, peers=(PeerCheck(MemberId("worker-1"), 0.021),)),
            "check round 0: ok; compute 0.050 s; all-gather with worker-1 0.021 s",
        ),
        (
            Checked(OrderId(5), 0, "died", error="its process was killed by SIGKILL"),
            "check round 0: died (its process was killed by SIGKILL)",
        ),
    ],
)
def test_the_log_has_what_was_measured_and_nothing_else(answer: Checked, line: str) -> None:
    assert only(asked().tell(HookSaid(answer)), Announce).reason == line


def test_a_repeated_order_is_done_once_and_answered_again() -> None:
    play = asked()
    assert none(play.said(ORDER), RunCheck)
    play.tell(HookSaid(ANSWER))
    actions = play.said(ORDER)
    assert only(actions, Checked) == ANSWER
    assert none(actions, RunCheck)


def test_a_newer_order_replaces_the_older() -> None:
    play = asked()
    play.said(Check(OrderId(6), 1))
    assert none(play.tell(HookSaid(ANSWER)), Checked)
    late = Checked(OrderId(6), 1, "ok")
    assert only(play.tell(HookSaid(late)), Checked) == late


def test_hooks_that_do_not_answer_are_answered_for() -> None:
    play = asked()
    found = only(play.pass_time(ORDER.seconds + 6), Checked)
    assert (found.result, found.error) == ("no answer", "the template or launcher did not answer")


def test_a_template_that_dies_meanwhile_ends_the_round() -> None:
    play = asked()
    assert only(play.tell(TrainerEnded(50)), Checked).result == "interrupted"


def test_a_template_that_reconnects_is_ordered_again() -> None:
    play = asked()
    play.tell(HookDisconnected("c1", alive=True))
    assert only(play.tell(template(connection="c2")), RunCheck).connection == "c2"


def test_worker_processes_that_are_started_end_what_is_measured() -> None:
    play = asked()
    assert only(play.tell(start(7, FIRST)), StartWorkers)
    assert none(play.tell(HookSaid(ANSWER)), Checked)


def test_a_member_that_trains_helps_with_the_all_gather() -> None:
    play = Play()
    play.ready()
    play.tell(start(1, FIRST))
    order = Check(OrderId(8), 2, 0, (CheckPeer(MemberId("worker-3"), "10.0.0.3", 2005),), compute=False)
    assert only(play.said(order), RunCheck).order == order
    actions = play.tell(HookSaid(Checked(OrderId(8), 2, "ok")))
    assert only(actions, Checked)
    assert none(actions, FindPort)


def test_a_round_that_needs_no_port_leaves_the_one_that_was_offered() -> None:
    play = Play()
    play.ready()
    play.said(Check(OrderId(6), 1))
    assert none(play.tell(HookSaid(Checked(OrderId(6), 1, "ok"))), FindPort)
    assert only(play.said(Welcome(1)), Ready).port == 2000


def test_an_order_that_finds_no_template_is_not_answered_before_there_is_one() -> None:
    play = Play()
    play.ready()
    play.tell(TrainerEnded(50))
    assert play.said(ORDER) == []


def test_the_last_words_reach_the_trainer() -> None:
    play = asked()
    play.tell(HookSaid(ANSWER))
    finish = Finish(OrderId(9), 3, "left out", "worker-0 failed the node check: compute: died")
    order = only(play.said(finish), FinishTrainer)
    assert (order.exit_code, order.last_words) == (3, "worker-0 failed the node check: compute: died")


def test_a_new_link_brings_the_answer_when_it_is_asked_for_again() -> None:
    play = asked()
    play.tell(HookSaid(ANSWER))
    play.tell(MasterConnected(), MasterSaid(Welcome(1)))
    assert only(play.said(ORDER), Checked) == ANSWER
