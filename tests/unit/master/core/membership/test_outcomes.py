"""Pods that end with code 0 on the order of an earlier master."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.master.core.actions import SaveStatus
from outrider.master.core.events import PodSeen, SpecChanged, StatusSaved
from outrider.wire.ids import NO_GENERATION
from outrider.wire.messages.generation import Stop
from outrider.wire.messages.membership import Finish
from tests.unit.master.core.adopted import adopted
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Play, job, names, running


def ends(play: Play, member: str) -> PodSeen:
    """Its ranks have ended, and an earlier master, which knew that of all ranks, ordered it to finish."""
    actor = play[member]
    actor.running, actor.finished, actor.unheard, actor.session, actor.failed = NO_GENERATION, True, True, "", 0
    return play.pod(actor)


def taken_over(before: Play) -> Play:
    after = successor(before)
    after.until(lambda: bool(after.announced("GenerationAdopted")))
    after.actions.clear()
    return after


def test_a_generation_that_an_earlier_master_ordered_to_finish_has_succeeded() -> None:
    """No controller recreates the succeeded pods of a Job, so the last member would wait for ever."""
    play = taken_over(adopted(3, least=2))
    for member in ("train-0", "train-1"):
        play.tell(ends(play, member))
    assert not play.sent(Stop)
    assert not play.faults()
    play.done("train-2")
    play.until(lambda: play.ended() is not None, 10)
    assert play.exit_code == 0
    assert [send.member for send in play.sent(Finish)] == ["train-2"]
    assert not play.deleted(), "a Job would recreate them"


@pytest.mark.parametrize("is_adopted", [True, False])
def test_a_fault_of_members_without_that_order_does_not_change_the_success(is_adopted: bool) -> None:
    before = adopted(3, least=2) if is_adopted else running(3, 2)
    play = taken_over(before)
    first, second, last = sorted(play.actors)
    for member in (first, second):
        play.tell(ends(play, member))
    play.crash(last)
    play.until(lambda: play.ended() is not None, 30)
    assert play.exit_code == 0
    assert play.announced("JobSucceeded")[0].reason == (
        f"All ranks ended with code 0 under an earlier master: {first}, {second} ended on its order."
    )
    assert [send.member for send in play.sent(Finish)] == [last]
    assert not play.deleted()


def test_steps_that_no_master_has_seen_are_not_said_to_be_none() -> None:
    """Those of a whole training may be made while there is no master."""
    play = Play(job(2))
    play.until(lambda: len(play.actors) == 2)
    for actor in play.actors.values():
        actor.has_pages = False
    play.until_running(2)
    for member in sorted(play.actors):
        play.done(member)
    play.until(lambda: play.ended() is not None, 10)
    assert play.announced("JobSucceeded")[0].reason == "All ranks ended with code 0."


def test_it_is_known_from_the_first_list_too() -> None:
    before = adopted(3, least=2)
    for member in ("train-0", "train-1"):
        ends(before, member)
    before["train-2"].running, before["train-2"].finished = NO_GENERATION, True
    after = successor(before)
    after.until(lambda: after.ended() is not None, 30)
    assert after.exit_code == 0
    assert not after.deleted()
    assert not after.faults()


def test_in_a_generation_of_this_master_such_an_end_is_a_fault() -> None:
    play = running(3, 2)
    play.tell(ends(play, "worker-1"))
    assert play.sent(Stop)
    assert play.announced("MemberFailed")
    play.until_next(2)


def test_the_end_of_a_member_that_was_ordered_to_leave_proves_nothing() -> None:
    play = taken_over(running(3, 2))
    pod = play.pod(play["worker-1"])
    play.tell(replace(pod, phase="terminating", reason="it was deleted", grace=10.0))
    play.tell(ends(play, "worker-1"))
    play.run(40)
    assert play.ended() is None


@pytest.mark.parametrize("is_suspended", [False, True])
def test_a_member_is_not_ordered_to_leave_before_a_status_without_it_is_saved(is_suspended: bool) -> None:
    """It ends with code 0; a master that reads a status with it would take that for the end of the job."""
    play = running(3, 2)
    play.save("worker-0")
    play.saves_status = False
    play.tell(SpecChanged(replace(play.spec, replicas=3 if is_suspended else 2), is_suspended))
    play.save("worker-0")
    play.run(20)
    assert play.sent(Stop)
    assert not play.sent(Finish)
    assert not play.deleted()
    play.saves_status = True
    newest = [action for action in play.actions if isinstance(action, SaveStatus)][-1]
    play.tell(StatusSaved(newest.version))
    play.run(1)
    assert {send.member for send in play.sent(Finish)} == (set(names(0, 1, 2)) if is_suspended else {"worker-2"})


def without_hooks(*members: str) -> Play:
    """These members have no template; the others are ready and wait for them."""
    play = Play(job(2))
    play.run(1.0)
    for member in members:
        play[member].has_trainer = False
    play.run(5.0)
    return play


def test_a_command_that_ends_with_0_before_any_member_was_ready_has_run_without_its_ranks() -> None:
    play = without_hooks("worker-0", "worker-1")
    play.tell(ends(play, "worker-1"))
    play.until(lambda: play.ended() is not None)
    assert play.exit_code == 1
    assert "the command ran alone, without RANK and WORLD_SIZE" in play.announced("JobFailed")[0].reason


def test_a_new_master_learns_from_the_members_if_they_were_ever_ready() -> None:
    before = without_hooks("worker-1")
    after = successor(before)
    after.tell(ends(after, "worker-1"))
    after.until_running(2)
    assert after.ended() is None
