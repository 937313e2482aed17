"""A program in the pod queries the ranks: each query gets its own answer."""

from __future__ import annotations

import json

from outrider.sidecar.core.actions import AnswerHere, CollectFromWorkers
from outrider.sidecar.core.events import (
    ActionFailed,
    AskedHere,
    Collected,
    HookDisconnected,
    MasterDisconnected,
    TrainerEnded,
)
from outrider.wire.ids import OrderId
from outrider.wire.messages.diagnostics import Answer, Ask
from tests.unit.sidecar.core.play import BEGAN, Play, none, only


def test_who_asks_in_the_pod_is_answered_and_not_the_master() -> None:
    play = Play()
    play.ready()
    asked = only(play.tell(AskedHere(-7, "stacks")), CollectFromWorkers)
    assert (asked.connection, asked.order, asked.what) == ("c1", -7, "stacks")
    assert asked.reason == "a program in the pod requests stacks"
    told = play.tell(Collected(-7, '{"ranks": []}'))
    assert only(told, AnswerHere).order == -7
    assert none(told, Answer)


def test_several_who_ask_and_the_master_are_each_given_their_own_answer() -> None:
    play = Play()
    play.ready()
    play.tell(AskedHere(-7, "stacks"), AskedHere(-8, "collectives"))
    play.said(Ask(OrderId(7), "stacks"))
    assert only(play.tell(Collected(-8, '"eight"')), AnswerHere).body == '"eight"'
    assert only(play.tell(Collected(7, '"master"')), Answer).body == '"master"'
    assert only(play.tell(Collected(-7, '"seven"')), AnswerHere).body == '"seven"'


def test_a_pod_without_a_master_answers_too() -> None:
    play = Play()
    play.ready()
    play.tell(MasterDisconnected())
    assert only(play.tell(AskedHere(-7, "stacks")), CollectFromWorkers).order == -7
    assert only(play.tell(Collected(-7, "{}")), AnswerHere).body == "{}"


def test_without_a_template_both_get_the_same_error_at_once() -> None:
    play = Play()
    told = only(play.tell(BEGAN, AskedHere(-7, "stacks")), AnswerHere)
    assert json.loads(told.body) == {"error": "no template or launcher is connected to the sidecar"}
    play.ready()
    play.tell(HookDisconnected("c1", False), TrainerEnded(50))
    assert only(play.tell(AskedHere(-8, "stacks")), AnswerHere).body == told.body
    assert only(play.said(Ask(OrderId(7), "stacks")), Answer).body == told.body


def test_a_template_that_goes_while_it_is_asked_is_an_answer_to_who_asked() -> None:
    play = Play()
    play.ready()
    asked = only(play.tell(AskedHere(-7, "stacks")), CollectFromWorkers)
    told = only(play.tell(ActionFailed(asked, "ConnectionError: connection c1 is closed")), AnswerHere)
    assert (told.order, json.loads(told.body)) == (
        -7,
        {"error": "the template or launcher disconnected before it had answered"},
    )
