"""Admission of a job without room for its minimum number of members, beside other jobs."""

from __future__ import annotations

from outrider.master.core.actions import CreatePod
from outrider.master.core.events import PodSeen, PodsListed, SpecChanged, StopAsked, TurnTold
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Play, job, running

OLD = "research/old"


def short(members: int = 3, least: int = 3, room: int = 2) -> Play:
    play = Play(job(members, least))
    play.room = room
    play.until(lambda: play.lacks_room())
    return play


def test_a_queued_job_deletes_its_pods_and_creates_none() -> None:
    play = short()
    play.tell(TurnTold(OLD))
    assert play.message == "is queued behind a job of another namespace, which is older and lacks room too"
    (event,) = play.announced("WaitingForCapacity")
    assert "There is room for 2 of the 3 members that a generation needs" in event.reason
    play.until(lambda: not play.members())
    play.actions.clear()
    play.run(120)
    assert not [a for a in play.actions if isinstance(a, CreatePod)]
    assert not play.lacks_room()
    assert (play.phase, play.faults()) == ("pending", [])


def test_when_a_job_is_admitted_its_members_are_created_again_at_no_cost() -> None:
    play = short()
    play.tell(TurnTold(OLD))
    play.until(lambda: not play.members())
    play.room = 3
    play.tell(TurnTold(""))
    play.until_running(3)
    assert play.world == ["worker-3", "worker-4", "worker-5"]
    assert play.relaunches_used() == 0


def test_a_job_that_trains_or_has_found_room_keeps_its_pods() -> None:
    trains, found = running(3, 2), short()
    actor = found["worker-2"]
    found.tell(PodSeen(actor.id, actor.uid, actor.role, actor.rank_index, "running"))
    for play in (trains, found):
        play.tell(TurnTold(OLD))
        assert not play.announced("WaitingForCapacity")


def test_members_that_have_trained_keep_what_is_in_their_memory() -> None:
    play = running(3)
    play.room = 2
    play.lose("worker-1")
    play.until(lambda: bool(play.announced("FailedScheduling")))
    assert play.stage == "gathering"
    assert not play.lacks_room()


def test_enough_members_with_room_are_no_lack() -> None:
    play = Play(job(3, 2))
    play.room = 2
    play.until_running(2)
    assert not play.lacks_room()


def test_a_suspended_job_is_not_queued_when_it_is_resumed() -> None:
    play = short()
    play.tell(TurnTold(OLD))
    play.until(lambda: not play.members())
    play.tell(SpecChanged(play.spec, suspended=True))
    play.room = 3
    play.tell(SpecChanged(play.spec))
    play.until_running(3)


def test_failed_scheduling_says_whether_the_job_waits_for_the_pod() -> None:
    waits, goes_on = short(3, 3, 2), short(3, 2, 1)
    (event,) = waits.announced("FailedScheduling")
    assert event.reason.endswith(" The job waits: a generation needs 3 members, and 2 can come.")
    assert [each.reason.rpartition(". ")[2] for each in goes_on.announced("FailedScheduling")] == [
        "The job does not wait for it.",
        "The job waits: a generation needs 2 members, and 1 can come.",
    ]


def test_a_job_that_never_ran_is_pending_for_the_next_master_too() -> None:
    play = short()
    play.tell(TurnTold(OLD))
    play.until(lambda: not play.members())
    after = successor(play)
    after.until(lambda: after.stage == "gathering")
    assert after.phase == "pending"


def test_an_admission_is_reported_once_and_never_for_a_job_that_ends_or_is_suspended() -> None:
    play = short()
    for _ in range(2):
        play.tell(TurnTold(OLD))
    assert len(play.announced("WaitingForCapacity")) == 1
    play.tell(SpecChanged(play.spec, suspended=True))
    play.tell(TurnTold(""))
    assert not play.announced("CapacityRequested")
    over = short()
    over.tell(StopAsked("enough"))
    assert over.tell(TurnTold(OLD)) == []


def test_pods_that_a_queued_job_deleted_are_not_losses_for_the_next_master() -> None:
    """If they were, a job without relaunches would end for lack of members that it never had."""
    play = Play(job(3, max_relaunches=0))
    play.room = 2
    play.until(lambda: play.lacks_room())
    play.tell(TurnTold(OLD))
    play.until(lambda: not play.members())
    play.run(2.0)  # the status is written
    after = successor(play)
    after.room = 3
    after.until_running(3)


def test_a_creation_whose_pod_was_never_shown_is_not_repeated_while_the_job_waits_or_ends() -> None:
    for what in (TurnTold(OLD), StopAsked("by hand")):
        play = short()
        play.creates_pods = False
        play.lose("worker-1")
        play.run(1.0)
        assert "worker-3" in {a.member for a in play.actions if isinstance(a, CreatePod)}
        play.tell(what)
        play.actions.clear()
        play.run(10.0)
        play.tell(PodsListed(()))
        assert not [a for a in play.actions if isinstance(a, CreatePod)], what


def test_a_pod_that_is_shown_after_its_job_was_queued_is_deleted_too() -> None:
    play = short()
    play.creates_pods = False
    play.lose("worker-1")
    play.run(1.0)
    request = next(a for a in reversed(play.actions) if isinstance(a, CreatePod) and a.member == "worker-3")
    play.tell(TurnTold(OLD))
    play.create(request)
    play.run(1.0)
    assert "worker-3" in play.deleted()
