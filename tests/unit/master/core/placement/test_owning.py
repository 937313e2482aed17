"""A job whose pods another controller creates, scaled from either side."""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.actions import Action, DeletePod, FollowOwner, ResizeOwner
from outrider.master.core.events import ActionFailed, OwnerEnded, OwnerSized, PodGone, PodSeen, SpecChanged
from outrider.wire.ids import Role
from outrider.wire.messages.membership import Finish
from tests.unit.master.core.adopted import adopted
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Play, job

KINDS = (ResizeOwner, FollowOwner)


def scale(play: Play, replicas: int) -> None:
    play.tell(SpecChanged(replace(play.spec, replicas=replicas)))


def resizes(play: Play) -> list[tuple[type[Action], int]]:
    return [(type(action), action.replicas) for action in play.actions if isinstance(action, KINDS)]


def test_the_owner_is_scaled_up_at_once() -> None:
    play = adopted(2, most=4)
    scale(play, 3)
    assert resizes(play) == [(ResizeOwner, 3)]
    assert play.announced("OwnerScaled")[0].reason == "The owner of the pods is scaled from 2 to 3 pods."
    play.tell(OwnerSized(3))
    play.appears("train-2", 2)
    play.until(lambda: bool(play.announced("ResizePending")))
    play.save("train-0")
    play.save("train-0")
    play.until_running(3)
    assert resizes(play) == [(ResizeOwner, 3)]


def test_the_owner_is_scaled_down_once_the_generation_is_smaller() -> None:
    play = adopted(3, most=6)
    scale(play, 2)
    play.run(2.0)
    assert resizes(play) == []
    play.save("train-0")
    play.save("train-0")
    play.until_running(2)
    assert resizes(play) == [(ResizeOwner, 2)]
    play.run(5.0)
    assert resizes(play) == [(ResizeOwner, 2)]
    assert not [action for action in play.actions if isinstance(action, DeletePod)]
    assert not play.sent(Finish), "it is the owner's pod"


def test_a_scaled_owner_is_followed_and_not_scaled_back() -> None:
    play = adopted(2, most=4)
    play.appears("train-2", 2)
    play.tell(OwnerSized(3))
    assert resizes(play) == [(FollowOwner, 3)]
    play.run(5.0)
    scale(play, 3)
    play.run(5.0)
    assert resizes(play) == [(FollowOwner, 3)]
    assert play.wanted() == 3


def test_a_pod_of_an_owner_that_grows_is_not_sent_away_before_the_job_follows() -> None:
    play = adopted(2, most=4)
    play.appears("train-2", 2)
    play.run(10.0)
    assert not play.deleted()


def test_an_owner_that_is_read_again_at_the_same_size_changes_nothing() -> None:
    play = adopted(2, most=4)
    scale(play, 3)
    play.tell(OwnerSized(2))
    assert resizes(play) == [(ResizeOwner, 3)]
    assert play.wanted() == 3


def test_a_wish_that_waits_for_a_checkpoint_outlives_the_master() -> None:
    play = adopted(3, most=6)
    scale(play, 2)
    play.run(2.0)
    after = Play(play.spec, term=2, saved=play.saved, actors=play.actors, now=play.now, master="m2")
    after.tell(OwnerSized(3))
    after.run(5.0)
    assert resizes(after) == []
    after.save("train-0")
    after.save("train-0")
    after.until_running(2)
    assert resizes(after) == [(ResizeOwner, 2)]


def test_an_owner_that_cannot_be_changed_is_reported_and_retried_ever_more_slowly() -> None:
    play = adopted(2, most=4)
    scale(play, 3)
    for tries, seconds in ((1, 30), (2, 60), (3, 120)):
        (*_, last) = [action for action in play.actions if isinstance(action, ResizeOwner)]
        assert len(resizes(play)) == tries
        play.tell(ActionFailed(last, "422 Invalid: completions are immutable"))
        play.run(seconds - 1.0)
        assert len(resizes(play)) == tries
        play.run(2.0)
    events = play.announced("OwnerScaleFailed")
    assert "completions are immutable. The master retries in 30 s." in events[0].reason
    assert play.is_running(2)


def test_a_job_that_cannot_be_written_follows_later() -> None:
    play = adopted(2, most=4)
    play.tell(OwnerSized(3))
    (follow,) = [action for action in play.actions if isinstance(action, FollowOwner)]
    play.tell(ActionFailed(follow, "the API server was not reached"))
    play.run(31.0)
    assert resizes(play) == [(FollowOwner, 3), (FollowOwner, 3)]


def test_an_owner_of_no_pods_is_waited_for() -> None:
    play = adopted(2, most=4)
    play.tell(OwnerSized(0))
    for actor in list(play.actors.values()):
        play.tell(PodGone(actor.id, actor.uid, "deleted"))
    play.run(60.0)
    assert resizes(play) == []
    assert play.ended() is None


def test_a_job_that_makes_its_own_pods_has_no_owner_to_ask() -> None:
    play = Play(job(2))
    play.until_running(2)
    play.tell(OwnerSized(5))
    scale(play, 2)
    assert resizes(play) == []


# -- its end --------------------------------------------------------------------------------------------------------
GIVEN_UP = OwnerEnded(False, "Job train has failed (BackoffLimitExceeded: Job has reached the specified backoff limit)")


def exit_code(play: Play) -> int | None:
    end = play.ended()
    return None if end is None else end.exit_code


def test_a_job_whose_owner_gave_up_fails_with_its_reason_and_the_last_fault() -> None:
    play = adopted(2, least=2)
    actor = play["train-1"]
    play.tell(PodSeen(actor.id, actor.uid, Role("worker"), actor.rank_index, "failed", "exit code 1", exit_code=1))
    play.run(5.0)
    play.tell(GIVEN_UP)
    play.run(10.0)
    assert play.announced("JobFailed")[0].reason == (
        f"{GIVEN_UP.why}; it creates no more pods. The last fault before it: The pod of train-1 failed with exit "
        f"code 1: exit code 1."
    )
    assert exit_code(play) == 1


def test_a_job_whose_owner_is_complete_has_succeeded() -> None:
    play = adopted(2)
    play.tell(OwnerEnded(True, "Job train is complete"))
    play.run(10.0)
    assert play.announced("JobSucceeded")[0].reason == "Job train is complete."
    assert exit_code(play) == 0


def test_an_end_that_is_known_already_is_reported_once() -> None:
    play = adopted(2)
    play.tell(GIVEN_UP)
    play.tell(OwnerEnded(True, "Job train is complete"))
    assert len(play.announced("JobFailed")) == 1
    assert not play.announced("JobSucceeded")


def test_a_suspended_owner_stops_the_generation_and_only_pods_that_it_deletes_are_finished() -> None:
    """A pod that ended with 0 before its owner deleted it would count as a completed index of a Job."""
    play = adopted(2)
    play.tell(OwnerSized(2, suspended=True))
    play.run(5.0)
    assert (play.phase, play.message) == ("suspended", "The owner of the pods is suspended.")
    assert not play.sent(Finish)
    actor = play["train-1"]
    play.tell(
        PodSeen(actor.id, actor.uid, Role("worker"), actor.rank_index, "terminating", "it was deleted", grace=30.0)
    )
    play.run(1.0)
    assert [sent.member for sent in play.sent(Finish)] == ["train-1"]
    assert play.announced("MemberDraining")[0].reason.endswith("its owner does not replace it.")


def test_a_resumed_owner_resumes_the_job_unless_its_user_has_suspended_it_too() -> None:
    play = adopted(2)
    play.tell(OwnerSized(2, suspended=True))
    play.run(5.0)
    play.tell(SpecChanged(play.spec, suspended=True))
    play.tell(OwnerSized(2))
    play.run(5.0)
    assert play.phase == "suspended"
    assert not play.announced("JobResumed")
    play.tell(SpecChanged(play.spec))
    assert len(play.announced("JobResumed")) == 1


def test_the_next_master_knows_that_the_owner_is_suspended() -> None:
    play = adopted(2)
    play.tell(OwnerSized(2, suspended=True))
    play.run(5.0)
    after = successor(play)
    after.tell(SpecChanged(after.spec))  # as every new master receives it
    after.run(5.0)
    assert (after.phase, after.message) == ("suspended", "The owner of the pods is suspended.")
