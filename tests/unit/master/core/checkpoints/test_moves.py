"""Planned saves: which save is requested, when, and what happens with it or without it."""

from __future__ import annotations

import dataclasses

from outrider.master.core.events import RestartRequested, ScaleRequested, SpecChanged, StopAsked
from outrider.wire.ids import NO_GENERATION
from outrider.wire.messages.checkpoints import SaveState, StateOffered
from outrider.wire.messages.generation import Stop
from outrider.wire.messages.membership import Leaving
from tests.unit.master.core.play import Play, job, running


def moving(members: int = 3, least: int | None = None, *, saves_in: float = 0.5, error: str = "") -> Play:
    """A running job whose script can save its state."""
    play = running(members, least)
    play.offer("worker-0", saves_in=saves_in, error=error)
    return play


def reasons(play: Play, kind: str) -> list[str]:
    return [each.reason for each in play.announced(kind)]


def test_a_stopped_job_saves_its_state_first() -> None:
    play = moving()
    play.tell(StopAsked("by `outrider stop`"))
    assert play.stage == "running"
    assert reasons(play, "SaveRequested") == [
        "worker-0 is requested to save the script's state, because the job is stopped: by `outrider stop`."
    ]
    assert play.until(lambda: play.is_over) < 1.0
    assert reasons(play, "StateSaved") == ["The script's state of step 25 was saved in 0.5 s: /data/state-1-1.pth."]


def test_a_member_that_is_deleted_with_the_job_saves_within_its_grace_and_is_not_replaced() -> None:
    play = moving(saves_in=3.0)
    play.tell(StopAsked("its ElasticJob was deleted", within=20.0))
    assert [each.message.seconds for each in play.sent(SaveState)] == [13.0]
    for number in range(3):
        play.say(play[f"worker-{number}"], Leaving("SIGTERM", 20.0))
    assert reasons(play, "MemberDraining")[0] == "worker-0 has to leave (SIGTERM) and has 20 s; the job ends."
    play.until(lambda: play.stage == "ended", 10.0)
    assert len(play.announced("StateSaved")) == len(play.sent(SaveState)) == 1
    assert not play.announced("ReplacementCreated")


def test_a_pod_that_is_lost_during_the_last_save_is_not_recreated() -> None:
    play = moving(4, 2, saves_in=30.0)
    play.tell(StopAsked("its ElasticJob was deleted", within=60.0))
    play.lose("worker-3")
    play.until(lambda: play.stage == "ended", 30.0)
    assert not play.announced("ReplacementCreated")


def left(play: Play, within: float = 20.0) -> Play:
    """The job was deleted, with its saved status; its master has ended, and the next one finds the pods."""
    after = Play(play.spec, term=play.term + 1, actors=play.actors, now=play.now + 3.0, master="m2", is_left=True)
    after.tell(StopAsked("its ElasticJob was deleted", within=within))
    return after


def test_a_master_that_ends_between_the_deletion_and_the_save_is_followed_by_one_that_asks_for_it_again() -> None:
    before = moving(saves_in=3.0)
    before.tell(StopAsked("its ElasticJob was deleted", within=24.0))
    assert len(before.sent(SaveState)) == 1
    after = left(before)
    after.until(lambda: after.stage == "ended", 15.0)
    (request,) = after.sent(SaveState)
    assert request.member == "worker-0"
    assert reasons(after, "StateSaved")
    assert not after.announced("ReplacementCreated")
    assert {each.member for each in after.sent(Stop)} == {"worker-0", "worker-1", "worker-2"}


def test_a_script_with_a_handler_of_its_own_is_sent_its_signal_by_the_next_master_as_well() -> None:
    before = Play(job(2, save_signal="SIGUSR1"))
    before.until_running(2)
    before["worker-0"].saves_in = 0.5
    after = left(before)
    after.until(lambda: after.stage == "ended", 15.0)
    assert [each.member for each in after.sent(SaveState)] == ["worker-0", "worker-1"]
    assert reasons(after, "StateSaved")


def test_if_the_ranks_were_stopped_already_the_next_master_ends_the_job_at_once() -> None:
    before = moving()
    before.tell(StopAsked("its ElasticJob was deleted", within=20.0))
    before.until(lambda: all(each.running == NO_GENERATION for each in before.actors.values()), 10.0)
    after = left(before)
    after.until(lambda: after.stage == "ended", 10.0)
    assert not after.sent(SaveState)


def test_a_member_that_is_not_heard_any_more_keeps_the_others_from_no_save() -> None:
    before = moving()
    before["worker-2"].unheard = True
    after = left(before)
    after.until(lambda: after.stage == "ended", 20.0)
    assert reasons(after, "StateSaved")


def test_a_new_master_asks_the_member_that_had_registered_a_save_handler() -> None:
    """The Hellos say so: the script's save handler is reported again only after the Welcome."""
    before = moving()
    after = Play(before.spec, term=2, saved=before.saved, actors=before.actors, now=before.now + 1.0, master="m2")
    after.tell(StopAsked("its ElasticJob is being deleted", within=20.0))
    after.until(lambda: after.is_over, 10.0)
    assert reasons(after, "StateSaved")


def test_a_save_is_requested_even_if_hardly_any_grace_is_left() -> None:
    play = moving()
    play.tell(StopAsked("its ElasticJob was deleted", within=0.0))
    assert [each.message.seconds for each in play.sent(SaveState)] == [1.0]


def test_a_job_whose_script_offers_nothing_stops_at_once() -> None:
    play = running(3)
    play.tell(StopAsked("by `outrider stop`"))
    assert play.is_over
    assert not play.sent(SaveState)


def test_a_second_forced_stop_does_not_wait_for_the_save() -> None:
    play = moving(saves_in=50.0)
    play.tell(StopAsked("SIGINT"))
    play.tell(StopAsked("SIGINT again", hard=True))
    assert play.is_over


def test_a_failed_save_does_not_keep_a_job_from_ending() -> None:
    play = moving(error="TypeError: cannot pickle a lock")
    play.tell(StopAsked("by `outrider stop`"))
    play.until(lambda: play.is_over, 2.0)
    (event,) = play.announced("StateNotSaved")
    assert event.severity == "warning"
    assert event.reason == (
        "The state could not be saved: TypeError: cannot pickle a lock; the last checkpoint is used."
    )


def test_a_rank_that_never_answers_is_waited_for_no_longer_than_a_save_may_take() -> None:
    play = moving(saves_in=1000.0)
    play.tell(StopAsked("by `outrider stop`"))
    took = play.until(lambda: play.is_over, 100.0)
    assert play.spec.save_grace < took < play.spec.save_grace + 5
    assert reasons(play, "StateNotSaved") == ["The state was not saved in time; the last checkpoint is used."]


def test_a_fault_while_the_state_is_saved_ends_the_job_all_the_same() -> None:
    play = moving(saves_in=30.0)
    play.tell(StopAsked("by `outrider stop`"))
    play.crash("worker-1")
    assert play.is_over


def test_the_replacement_of_a_leaving_member_waits_for_the_state_and_no_step_is_repeated() -> None:
    play = moving()
    play.say(play["worker-1"], Leaving("SIGTERM", 30.0))
    assert not play.sent(SaveState), "its replacement may come first"
    play.until_next(3)
    (request,) = play.sent(SaveState)
    assert request.member == "worker-0"
    assert reasons(play, "SaveRequested")[0].endswith("because the generation will replace worker-1 by worker-3.")
    assert play["worker-0"].base == play.highest_step, "nothing is repeated"


def test_if_the_save_fails_the_replacement_joins_as_before() -> None:
    play = moving(error="OSError: no space left")
    play.say(play["worker-1"], Leaving("SIGTERM", 30.0))
    assert play.until_next(3) < 6.0


def test_at_a_third_of_the_grace_the_state_is_saved_though_no_replacement_is_there() -> None:
    play = moving(3, 2)
    play.creates_pods = False
    play.say(play["worker-1"], Leaving("SIGTERM", 30.0))
    play.until(lambda: bool(play.sent(SaveState)), 10.5)
    assert play.announced("SaveRequested")[0].reason.endswith("because worker-1 has to leave (SIGTERM).")
    play.until_next(2, 2.0)


def test_when_all_members_have_to_leave_the_state_is_saved_at_once() -> None:
    play = moving()
    play.creates_pods = False
    for number in range(3):
        play.say(play[f"worker-{number}"], Leaving("SIGTERM", 30.0))
    (request,) = play.sent(SaveState)
    assert request.message.seconds < 30.0
    play.until(lambda: play.stage != "running", 2.0)
    assert play.message == "All members have to leave, and the planned save has ended."


def test_a_suspended_job_saves_its_state_first() -> None:
    play = moving()
    play.tell(SpecChanged(play.spec, suspended=True))
    assert play.stage == "running"
    play.until(lambda: play.phase == "suspended", 30.0)
    assert play["worker-0"].step_at(play.now) <= play.saved_steps()["/data/state-1-1.pth"]


def test_growth_does_not_wait_for_a_checkpoint_if_the_state_can_be_saved() -> None:
    play = moving(4, 2)
    play.lose("worker-3")
    play.until_next(3)
    play.offer("worker-0")
    assert play.until_next(4) < 6.0
    assert play["worker-0"].base == play.highest_step


def test_a_restart_at_the_next_checkpoint_comes_at_once() -> None:
    play = moving()
    play.tell(RestartRequested(at_checkpoint=True))
    assert play.until_next(3) < 2.0


def test_fewer_members_are_had_as_soon_as_the_state_is_saved() -> None:
    play = moving(3, 2)
    play.tell(ScaleRequested(2))
    assert play.until_next(2) < 2.0
    assert play["worker-0"].base == play.highest_step


def test_an_offer_of_another_generation_counts_for_nothing() -> None:
    play = running(3)
    old = play.generation
    play.crash("worker-1")
    play.until_next(3)
    play.say(play["worker-0"], StateOffered(old, ("model",)))
    play.tell(StopAsked("by `outrider stop`"))
    assert play.is_over


def test_a_member_that_reconnects_is_asked_again() -> None:
    play = moving(saves_in=3.0)
    play.tell(StopAsked("by `outrider stop`"))
    play.reconnect("worker-0")
    play.until(lambda: play.is_over, 10.0)
    assert len(play.announced("StateSaved")) == 1
    assert len({dataclasses.astuple(each.message)[0] for each in play.sent(SaveState)}) == 1


def test_a_checkpoint_that_ends_while_the_state_is_being_saved_is_older_and_does_not_go_before_it() -> None:
    play = moving(3, 2, saves_in=2.0)
    play.tell(ScaleRequested(2))
    play.run(0.5)
    play.save("worker-0")
    assert not play.announced("ResizeStarted")
    play.until_next(2)
    (saved,) = play.announced("StateSaved")
    (resized,) = reasons(play, "ResizeStarted")
    assert resized.split(" is finished")[0].rsplit(" ", 1)[-1] in saved.reason


def test_if_the_save_fails_the_resize_waits_for_the_next_checkpoint() -> None:
    play = moving(3, 2, error="TypeError: cannot pickle")
    play.tell(ScaleRequested(2))
    play.run(2.0)
    assert reasons(play, "StateNotSaved")
    assert not play.announced("ResizeStarted")
    play.save("worker-0")
    play.until_next(2)
