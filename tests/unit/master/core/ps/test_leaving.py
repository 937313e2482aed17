"""A chief that has to leave saves first, as late as it can, because its replacement restores that checkpoint."""

from __future__ import annotations

import pytest

from outrider.master.core.events import StopAsked
from outrider.wire.messages.checkpoints import SaveState
from outrider.wire.messages.membership import Leaving
from tests.unit.master.core.ps_play import PsPlay, created, stopped, training


def draining(*, room: int | None = None, error: str = "", offers: bool = True) -> PsPlay:
    play = training(1, 2)
    if offers:
        play.offer("chief-0", error=error)
        play.run(1)
    play.room = room
    play.say(play["chief-0"], Leaving("SIGTERM", 30.0))
    return play


def test_a_chief_that_has_to_leave_saves_when_its_replacement_is_ready_and_gives_way() -> None:
    play = draining()
    play.run(1)
    assert play.sent(SaveState) == [], "what is made until its replacement is there would not be in it"
    play.until(lambda: play.is_running() and play.holder("chief").id == "chief-1")
    (request,) = play.announced("SaveRequested")
    assert request.reason == "chief-0 is requested to save, because it has to leave (SIGTERM)."
    order = next(number for number, action in enumerate(play.actions) if action in play.sent(SaveState))
    kinds = [type(action).__name__ for action in play.actions[:order]]
    assert "Stop" not in kinds
    assert stopped(play) == {"chief-0"}
    assert [member for member, _index in created(play)] == ["chief-1"]
    assert play.restarts_used() == 0


def test_without_a_ready_replacement_it_saves_a_moment_before_its_grace_ends() -> None:
    play = draining(room=4)
    play.until(lambda: bool(play.sent(SaveState)))
    assert stopped(play) == set()
    assert 0 < play.until(lambda: bool(stopped(play))) <= 10.0
    assert stopped(play) == {"chief-0"}
    assert len(play.announced("SaveRequested")) == 1


def test_a_replacement_that_comes_late_has_it_saved_once_more() -> None:
    play = draining(room=4)
    play.until(lambda: bool(play.sent(SaveState)))
    play.run(3)
    late = play["chief-1"]
    late.waits = False
    play.connect(late)
    play.until(lambda: play.is_running() and play.holder("chief").id == "chief-1")
    assert len(play.announced("SaveRequested")) == 2
    assert stopped(play) == {"chief-0"}


@pytest.mark.parametrize(("error", "is_reported"), [("AbortedError: the ps is away", True), ("", False)])
def test_a_chief_that_cannot_save_still_leaves(error: str, is_reported: bool) -> None:
    play = draining(error=error, offers=bool(error))
    play.until(lambda: play.is_running() and play.holder("chief").id == "chief-1")
    reasons = [a.reason for a in play.announced("StateNotSaved")]
    assert reasons == [f"chief-0 could not save before it leaves: {error}; the last checkpoint is used."] * is_reported


def test_a_chief_that_does_not_reply_is_waited_for_until_its_grace_ends_at_most() -> None:
    play = training(1, 1)
    play.offer("chief-0")
    play["chief-0"].saves_in = 1000.0
    play.say(play["chief-0"], Leaving("SIGTERM", 30.0))
    play.until(lambda: play.is_running() and play.holder("chief").id == "chief-1", 40.0)
    assert stopped(play) == {"chief-0"}


def test_while_a_parameter_server_is_away_it_is_not_asked() -> None:
    play = training(1, 1)
    play.offer("chief-0")
    play.run(1)
    play.creates_pods = False
    play.lose("ps-0")
    play.say(play["chief-0"], Leaving("SIGTERM", 30.0))
    play.run(40)
    assert play.sent(SaveState) == []
    assert "chief-0" in stopped(play)


def test_a_job_that_is_stopped_meanwhile_waits_for_no_save() -> None:
    play = draining()
    play.run(1)
    play.tell(StopAsked("enough"))
    play.until(lambda: play.ended() is not None, 30.0)
    assert play.sent(SaveState) == []
