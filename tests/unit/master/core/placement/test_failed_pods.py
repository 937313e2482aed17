"""The newest failed pods of each rank index are kept for their logs, and hold no resources."""

from __future__ import annotations

import dataclasses

import pytest

from outrider.master.core.actions import CreatePod, DeletePod, PlacePod
from outrider.master.core.events import ActionFailed, PodGone, PodSeen, PodsListed, SpecChanged
from outrider.master.core.spec import Rule
from outrider.master.core.status.document import LIVING_STATES
from outrider.wire.ids import NO_GENERATION, RankIndex, Role
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Play, running

EVICTED = "Evicted: The node was low on resource: memory."


def fail_again_and_again(play: Play, times: int, rank_index: int = 1) -> list[str]:
    """Fails the member with this rank index, and its replacements."""
    failed = []
    for _ in range(times):
        holder = play.holder_of(rank_index)
        play.fail(holder)
        failed.append(str(holder))
        play.until_next()
        play.run(1)
    return failed


def test_the_newest_of_a_rank_index_are_kept() -> None:
    play = running(3, keep_failed_pods=2, relaunch_limit=9)
    assert fail_again_and_again(play, 4) == ["worker-1", "worker-3", "worker-4", "worker-5"]
    assert play.deleted() == ["worker-1", "worker-3"]
    assert play.announced("FailedPodDeleted")[0].reason == (
        "The pod of worker-1, which has failed, is deleted: only 2 failed pods per rank index are kept "
        "(keepFailedPods)."
    )
    fail_again_and_again(play, 2, rank_index=0)
    assert len(play.deleted()) == 2, "another rank index has its own"


def test_no_failed_pod_is_kept_if_the_limit_is_0() -> None:
    play = running(2, keep_failed_pods=0)
    assert fail_again_and_again(play, 1) == play.deleted()


def test_fewer_are_kept_as_soon_as_the_limit_is_lowered() -> None:
    play = running(2, keep_failed_pods=3)
    fail_again_and_again(play, 3)
    assert not play.deleted()
    play.tell(SpecChanged(dataclasses.replace(play.spec, keep_failed_pods=1)))
    assert play.deleted() == ["worker-1", "worker-2"]


def test_a_new_master_counts_those_that_it_finds() -> None:
    play = running(2, keep_failed_pods=2, relaunch_limit=9)
    fail_again_and_again(play, 2)
    after = successor(play)
    after.until_running(2)
    after.run(3)
    fail_again_and_again(after, 1)
    assert after.deleted() == ["worker-1"]


def test_a_pod_that_was_deleted_while_no_master_watched_is_not_counted() -> None:
    play = running(2, keep_failed_pods=2, relaunch_limit=9)
    fail_again_and_again(play, 2)
    play["worker-1"].gone = True
    after = successor(play)
    after.until_running(2)
    after.run(3)
    fail_again_and_again(after, 1)
    assert not after.deleted()


def test_one_whose_sidecar_runs_on_is_deleted_because_it_holds_what_it_has() -> None:
    play = running(2, keep_failed_pods=3)
    play.fail("worker-1", lingers=True)
    play.run(10)
    assert not play.deleted()
    play.run(10)
    assert play.deleted() == ["worker-1"]
    assert "something in it still runs" in play.announced("FailedPodDeleted")[0].reason


def test_one_that_ends_in_time_is_kept() -> None:
    play = running(2, keep_failed_pods=3)
    play.fail("worker-1", lingers=True)
    play.run(5)
    play.fail("worker-1")
    play.run(200)
    assert not play.deleted()


def test_one_that_the_platform_starts_again_is_deleted_at_once() -> None:
    play = running(2, keep_failed_pods=3)
    play.fail("worker-1", lingers=True)
    actor = play["worker-1"]
    play.tell(PodSeen(actor.id, actor.uid, Role("worker"), RankIndex(1), "running", "RestartedTrainer: again"))
    assert play.deleted() == ["worker-1"]


def test_a_new_master_waits_for_the_end_of_a_pod_that_the_last_master_failed() -> None:
    play = running(2, keep_failed_pods=3, rules=(Rule((13,), "replace"),))
    play.crash("worker-1", code=13)
    play.until_next(2)
    play["worker-1"].failed = None  # it has not ended, and never will
    after = successor(play)
    after.until_running(2)
    after.run(90)
    assert not after.deleted()
    after.run(20)
    assert after.deleted() == ["worker-1"]


def test_a_deletion_that_was_refused_is_tried_again() -> None:
    play = running(2, keep_failed_pods=0)
    play.fail("worker-1")
    play["worker-1"].gone = True  # it cannot be deleted
    (action,) = (a for a in play.actions if isinstance(a, DeletePod))
    play.tell(ActionFailed(action, "the API server does not answer"))
    play.run(6)
    assert play.deleted() == ["worker-1", "worker-1"]
    play.tell(PodGone(action.member, action.uid, "deleted"))
    play.run(60)
    assert len(play.deleted()) == 2


def evict(play: Play, rank_index: int = 1) -> str:
    """Has the kubelet evict the pod with this rank index, and leave it as failed."""
    holder = play.holder_of(rank_index)
    actor = play[holder]
    actor.running, actor.unheard, actor.failed = NO_GENERATION, True, 137
    play.tell(taken(play, holder))
    play.until_next()
    play.run(1)
    return str(holder)


def taken(play: Play, member: str, rank_index: int = 1) -> PodGone:
    actor = play[member]
    return PodGone(actor.id, actor.uid, EVICTED, 137, remains=True, rank_index=RankIndex(rank_index))


def test_evicted_pods_do_not_pile_up_and_those_that_failed_by_themselves_are_kept_before_them() -> None:
    play = running(3, keep_failed_pods=2, relaunch_limit=9)
    (failed,) = fail_again_and_again(play, 1)
    first, second = evict(play), evict(play)
    assert play.deleted() == [first]
    assert play.announced("FailedPodDeleted")[0].reason == (
        f"The pod of {first}, which was taken from its node ({EVICTED}), is deleted: only 2 failed pods per rank index "
        f"are kept (keepFailedPods)."
    )
    assert fail_again_and_again(play, 1)
    assert play.deleted() == [first, second]
    assert not play[failed].gone


def test_an_evicted_pod_that_is_shown_again_is_deleted_once_and_then_forgotten() -> None:
    play = running(2, keep_failed_pods=0)
    play.freeze("worker-1")
    play.tell(taken(play, "worker-1"))
    play.tell(taken(play, "worker-1"))
    play.until_next(2)
    assert play.deleted() == ["worker-1"]
    play.run(1)
    assert play.handed_over()["failed_pods"] == {}
    assert not play.announced("MemberFailed"), "it costs nothing"


def test_a_new_master_counts_the_evicted_pods_that_it_is_shown() -> None:
    play = running(2, keep_failed_pods=1)
    first = evict(play)
    play[first].gone = True  # for the list of what runs
    after = successor(play)
    after.tell(PodsListed((), (taken(play, first),)))
    after.tell(SpecChanged(dataclasses.replace(after.spec, keep_failed_pods=0)))
    assert after.deleted() == [first]


def test_evicted_pods_of_another_controller_are_left_to_it() -> None:
    play = running(2, keep_failed_pods=0)
    play.adopt()
    play.tell(taken(play, "worker-1"))
    play.run(30)
    assert not play.deleted()


def test_the_pods_of_another_controller_are_its_own_to_keep() -> None:
    play = running(2, keep_failed_pods=0)
    play.adopt()
    play.fail("worker-1", lingers=True)
    play.run(60)
    assert not play.deleted()


def test_a_replacement_has_how_many_failed_before_it_and_how_many_members_are_desired_now() -> None:
    play = running(3, 2, relaunch_limit=9, grow_patience=1.0)
    for member in ("worker-1", "worker-3"):
        play.fail(member)
        play.until_next(3)
    play.lose("worker-4")
    play.until_next(3)
    made = [a for a in play.actions if isinstance(a, CreatePod)]
    assert [(a.member, a.relaunches, a.wanted) for a in made] == [
        ("worker-3", 1, 3), ("worker-4", 2, 3), ("worker-5", 2, 3)
    ], "a deletion uses no budget"  # fmt: skip
    play.tell(SpecChanged(dataclasses.replace(play.spec, replicas=2)))
    play.until_next(2)
    play.lose("worker-0")
    play.until_next(2)
    newest = [a for a in play.actions if isinstance(a, CreatePod)][-1]
    assert (newest.rank_index, newest.wanted) == (0, 2)


def test_a_spare_that_replaces_failed_pods_has_their_number_too() -> None:
    play = running(2, spares=1)
    play.run(3)
    play.fail("worker-1")
    play.until_next()
    (placed,) = [a for a in play.actions if isinstance(a, PlacePod)]
    assert (placed.member, placed.rank_index, placed.relaunches) == ("worker-2", 1, 1)


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"max_relaunches": 0}, "--max-relaunches 0 allows no further replacements"),
        ({"max_relaunches": 1}, "--max-relaunches 1 allows no further replacements"),
        ({"relaunch_limit": 0}, "its pods have failed as often as restartLimit (0) allows"),
    ],
)
def test_a_rank_index_that_stays_vacant_is_reported_once_with_the_reason(policy: dict[str, int], why: str) -> None:
    play = running(3, 2, **policy)
    for lost in ("worker-1", "worker-3"):
        if lost in play.actors:
            play.fail(lost)
            play.run(30)
    assert [each.reason for each in play.announced("ReplacementLimitReached")] == [f"Rank index 1 stays vacant: {why}."]
    play.run(60)
    assert len(play.announced("ReplacementLimitReached")) == 1


def test_of_many_removed_members_the_newest_are_shown() -> None:
    play = running(1, max_relaunches=1000, keep_failed_pods=0)
    for number in range(70):
        play.until_running(1)
        play.lose(f"worker-{number}")
    play.until_running(1)
    shown = [row["id"] for row in play.status()["members"] if row["state"] not in LIVING_STATES]
    assert shown == [f"worker-{number}" for number in range(6, 70)]
