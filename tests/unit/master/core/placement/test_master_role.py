"""A job with a member of role master, as in a PyTorchJob: which member has rank index 0, and what replaces it."""

from __future__ import annotations

from outrider.master.core.actions import CreatePod, HidePod
from outrider.master.core.events import PodSeen, ScaleRequested
from outrider.master.core.spec import MASTER, RoleLimits
from tests.unit.master.core.play import Play, job


def with_master(members: int = 3, least: int | None = None, **more: object) -> Play:
    play = Play(job(members, least, has_master=True, **more))
    play.until_running(members)
    play.run(2.0)
    return play


def made(play: Play) -> list[tuple[str, str, int | None]]:
    return [(a.member, a.role, a.rank_index) for a in play.actions if isinstance(a, CreatePod)]


def test_the_master_is_rank_index_0_and_has_rank_0() -> None:
    play = with_master()
    assert made(play) == [("master-0", "master", 0), ("worker-0", "worker", 1), ("worker-1", "worker", 2)]
    assert play.world == ["master-0", "worker-0", "worker-1"]
    place = play.places()["master-0"]
    assert (place.first_rank, place.role, place.role_world_size) == (0, "master", 1)


def test_a_master_that_is_lost_is_replaced_by_a_master_while_the_workers_go_on() -> None:
    play = with_master(3, 2)
    play.lose("master-0")
    play.until_running(2)
    assert play.world == ["worker-0", "worker-1"]
    play.until(lambda: bool(play.announced("ResizePending")))
    play.save("worker-0")
    play.save("worker-0")
    play.until_running(3)
    assert play.world == ["master-1", "worker-0", "worker-1"]


def test_a_master_that_has_to_leave_is_replaced_by_a_master() -> None:
    play = with_master()
    actor = play["master-0"]
    play.tell(PodSeen(actor.id, actor.uid, actor.role, actor.rank_index, "terminating", "evicted", grace=30.0))
    play.until_next(3)
    assert play.world == ["master-1", "worker-0", "worker-1"]


def test_a_spare_takes_the_rank_index_of_a_lost_master_at_once() -> None:
    play = with_master(2, spares=1)
    play.until(lambda: len(play.ready()) == 1)
    play.lose("master-0")
    play.until_next(2, 2.0)
    assert play.world == ["worker-1", "worker-0"]
    assert play.places()["worker-1"].first_rank == 0


def test_a_worker_that_is_too_many_does_not_become_the_master() -> None:
    play = with_master(3, 1)
    play.lose("master-0")
    play.tell(ScaleRequested(2))
    play.until(lambda: "master-1" in play.members())
    play.run(30)
    assert play.member("master-1")["rank_index"] == 0


def test_a_masters_failures_have_a_limit_of_their_own() -> None:
    play = with_master(2, limits=(RoleLimits(MASTER, 0, None),))
    play.fail("worker-0")
    play.until_next(2)
    assert [a.member for a in play.actions if isinstance(a, HidePod)] == ["worker-0"], "a pod that is kept"
    play.fail("master-0")
    play.until(lambda: play.ended() is not None)
    assert play.phase == "failed"


def test_a_master_that_follows_finds_the_pods_of_both_roles() -> None:
    play = with_master()
    after = Play(play.spec, term=2, saved=play.saved, actors=play.actors, now=play.now, master="m2")
    after.until_running(3)
    assert after.world == ["master-0", "worker-0", "worker-1"]
    assert not [a for a in after.actions if isinstance(a, CreatePod)]


def test_what_is_ignored_is_reported_once() -> None:
    play = Play(job(2, remarks=("spec.x: not needed.",)))
    play.until_running(2)
    assert [a.reason for a in play.announced("FieldIgnored")] == ["spec.x: not needed."]
    after = Play(play.spec, term=2, saved=play.saved, actors=play.actors, now=play.now, master="m2")
    after.until_running(2)
    assert not after.announced("FieldIgnored")
