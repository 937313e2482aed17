"""Planned saves: a script offers once a generation, and gets the order while it is connected."""

from __future__ import annotations

from outrider.sidecar.core.actions import SaveWorkersState
from outrider.sidecar.core.events import HookDisconnected, HookSaid, WorkersStarted
from outrider.wire.ids import OrderId
from outrider.wire.messages.checkpoints import SaveState, StateOffered, StateSaved
from outrider.wire.messages.membership import Welcome
from tests.unit.sidecar.core.play import FIRST, SECOND, Play, none, only, start, template

ORDER = SaveState(OrderId(7), FIRST, 30.0)


def offers() -> Play:
    play = Play()
    play.ready()
    play.tell(start(1, FIRST), WorkersStarted(FIRST, (101, 102)))
    assert only(play.tell(HookSaid(StateOffered(FIRST, ("model",)))), StateOffered).names == ("model",)
    return play


def test_what_runs_is_asked_to_save_and_what_does_not_run_is_answered_for() -> None:
    play = offers()
    assert only(play.said(ORDER), SaveWorkersState).order == 7
    assert "does not run here" in only(play.said(SaveState(OrderId(8), SECOND, 30.0)), StateSaved).error


def test_an_offer_of_a_generation_that_does_not_run_here_is_not_sent() -> None:
    play = Play()
    play.ready()
    assert play.tell(HookSaid(StateOffered(FIRST, ("model",)))) == []
    play = offers()
    assert play.tell(HookSaid(StateOffered(SECOND, ("optimizer",)))) == []
    assert only(play.said(Welcome(1)), StateOffered).names == ("model",)


def test_an_order_to_save_waits_for_a_trainer_whose_line_broke() -> None:
    play = offers()
    play.tell(HookDisconnected("c1", True))
    assert play.said(ORDER) == []
    play.tell(template(connection="c2", running=FIRST, workers=((0, 101), (1, 102))))
    actions = play.said(ORDER)
    assert only(actions, SaveWorkersState).connection == "c2"
    assert none(actions, StateSaved)
