"""A member whose sidecar never reaches a master: its command waits, or runs unsupervised for good."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.sidecar.core.actions import Action, Announce, Exit, KeepWord, RunAlone, Send, StartWorkers, TellTrainer
from outrider.sidecar.core.events import (
    ActionFailed,
    HookDisconnected,
    LifelineLost,
    MasterConnected,
    MasterDisconnected,
    MasterSaid,
    PortFound,
    SigtermReceived,
    TrainerEnded,
    Woke,
    WordKept,
)
from outrider.wire.messages.generation import Ready
from outrider.wire.messages.membership import Hello, Refused, Welcome
from tests.unit.sidecar.core.play import BEGAN, FIRST, RESTARTED, Play, none, only, start, template

MAY = replace(BEGAN, alone_after=600.0, endpoint="tcp://outrider-master.outrider-system.svc:7070")


def waits(began: object = MAY) -> Play:
    play = Play()
    play.tell(began, template(), PortFound(2000))  # type: ignore[arg-type]
    return play


def let_go(began: object = MAY) -> tuple[Play, list[Action]]:
    play = waits(began)
    play.pass_time(700)
    return play, play.tell(WordKept("alone"))


def told(actions: list[Action]) -> list[TellTrainer]:
    return [each for each in actions if isinstance(each, TellTrainer)]


def test_a_command_that_forms_its_world_by_itself_is_let_go_after_its_time_and_not_before() -> None:
    play = waits()
    assert none(play.pass_time(599), KeepWord)
    kept = only(play.pass_time(2), KeepWord)
    assert (kept.word, kept.trainer) == ("alone", 50)
    actions = play.tell(WordKept("alone"))
    assert only(actions, RunAlone).connection == "c1"
    assert "port" in only(actions, RunAlone).reason
    assert only(actions, Announce).kind == "Unsupervised"


def test_nothing_runs_before_the_word_is_written() -> None:
    play = waits()
    action = only(play.pass_time(601), KeepWord)
    assert none(play.tell(ActionFailed(action, "OSError: no space")), RunAlone)
    assert only(play.pass_time(61), KeepWord).word == "alone"


@pytest.mark.parametrize(
    "began",
    [BEGAN, RESTARTED, replace(MAY, restarted=True), replace(MAY, word="served")],
    ids=["not allowed", "restarted", "restarted and nothing written", "a master had spoken"],
)
def test_any_other_waits_for_ever_and_says_so_each_minute(began: object) -> None:
    actions = waits(began).pass_time(86400)
    assert none(actions, KeepWord)
    lines = told(actions)
    assert 1430 < len(lines) <= 1440
    assert "no master was reached at" in lines[0].reason
    assert lines[0].reason.endswith("the command waits")


@pytest.mark.parametrize("word", [Welcome(1), Refused("its pod is not shown yet", 0.2)])
def test_any_message_of_a_master_is_recorded_before_anything_else_is_sent_and_ends_the_option(
    word: Welcome | Refused,
) -> None:
    play = waits()
    play.tell(MasterConnected())
    first, *_ = play.tell(MasterSaid(word))
    assert isinstance(first, KeepWord)
    assert first.word == "served"
    play.tell(WordKept("served"), MasterDisconnected())
    actions = play.pass_time(86400)
    assert none(actions, KeepWord)
    assert told(actions)


def test_a_masters_word_ends_the_chance_though_it_could_not_be_written_down() -> None:
    play = waits()
    play.tell(MasterConnected())
    kept = only(play.tell(MasterSaid(Welcome(1))), KeepWord)
    assert only(play.tell(ActionFailed(kept, "OSError: no space")), Announce).kind == "ActionFailed"
    play.tell(MasterDisconnected())
    assert none(play.pass_time(86400), KeepWord)


def test_the_hooks_were_first() -> None:
    play = waits()
    play.tell(MasterConnected(), MasterSaid(Welcome(1)))
    assert only(play.tell(WordKept("alone")), Hello).unsupervised
    assert none(play.tell(start(1, FIRST)), StartWorkers)


def test_who_was_let_go_obeys_no_master_and_says_so_in_each_hello() -> None:
    play, _ = let_go()
    assert only(play.tell(MasterConnected()), Hello).unsupervised
    for message in (Welcome(1), Refused("it trains on", 60.0)):
        assert none(play.said(message), Ready)
    assert play.tell(start(1, FIRST)) == []
    actions = play.pass_time(100)
    assert all(isinstance(each, Send) and isinstance(each.message, Hello) for each in actions)
    assert actions


def test_a_hook_that_connects_to_an_unsupervised_pod_is_ordered_to_run_and_the_newest_python_is_its_command() -> None:
    play = Play()
    play.tell(MAY, template(40, "c0", what="launcher", can_start=False), template(), PortFound(2000))
    play.pass_time(700)
    told = [each.connection for each in play.tell(WordKept("alone")) if isinstance(each, RunAlone)]
    assert told == ["c1", "c0"]
    assert none(play.tell(TrainerEnded(40)), Exit)
    actions = play.tell(template(41, "c2", what="launcher", can_start=False))
    assert only(actions, RunAlone).connection == "c2"
    assert none(actions, KeepWord)
    actions = play.tell(template(60, "c3"))
    assert (only(actions, RunAlone).connection, only(actions, KeepWord).trainer) == ("c3", 60)
    assert play.tell(WordKept("alone")) == []
    assert none(play.tell(TrainerEnded(50)), Exit)
    assert only(play.tell(TrainerEnded(60)), Exit)


def test_it_says_hello_while_there_is_a_link_and_at_its_time() -> None:
    play, _ = let_go()
    play.tell(MasterConnected())
    assert play.tell(Woke()) == []
    assert play.deadline() is not None
    play.tell(MasterDisconnected())
    assert play.deadline() is None


def test_it_ends_with_the_command_that_owns_the_job() -> None:
    play, _ = let_go()
    assert only(play.tell(LifelineLost()), Exit)


def test_a_sidecar_that_is_started_again_ends_with_the_command_that_was_let_go_before_it() -> None:
    play = Play()
    play.tell(replace(MAY, restarted=True, word="alone", alone_trainer=50))
    assert none(play.tell(TrainerEnded(60)), Exit)
    assert only(play.tell(TrainerEnded(50)), Exit)


def test_a_sidecar_that_is_started_again_lets_the_next_trainer_go_at_once() -> None:
    play = Play()
    play.tell(replace(MAY, restarted=True, word="alone"))
    actions = play.tell(template(60, "c2"))
    assert only(actions, KeepWord).trainer == 60
    assert only(actions, RunAlone).connection == "c2"


def test_the_sidecar_ends_with_its_command_unless_it_is_native() -> None:
    play, _ = let_go()
    assert none(play.tell(HookDisconnected("c1", True)), Exit)
    assert only(play.tell(TrainerEnded(50)), Exit).exit_code == 0
    native, _ = let_go(replace(MAY, is_native=True))
    assert none(native.tell(TrainerEnded(50)), Exit)
    assert only(native.tell(template(70, "c3")), RunAlone).connection == "c3"
    assert only(native.tell(SigtermReceived(30.0)), Exit)


def test_a_trainer_that_comes_late_is_let_go_when_it_comes() -> None:
    play = Play()
    play.tell(MAY)
    assert none(play.pass_time(3600), KeepWord)
    actions = play.tell(template()) + play.pass_time(0.1)
    assert only(actions, KeepWord).word == "alone"
