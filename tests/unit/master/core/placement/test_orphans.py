"""Members whose sidecar has exited for good: their pod is deleted at once, and the next generation waits for that."""

from __future__ import annotations

import dataclasses
import json

from outrider.master.core.actions import DeletePod, PlacePod
from outrider.master.core.events import ActionFailed, PodSeen, SidecarDisconnected
from outrider.wire.ids import Generation
from outrider.wire.messages.generation import Start, Stop
from tests.unit.master.core.play import Play, running

KILLED = "ended with exit code 137"


def shown(play: Play, member: str, **more: object) -> PodSeen:
    actor = play[member]
    pod = PodSeen(actor.id, actor.uid, actor.role, actor.rank_index, "running")
    return dataclasses.replace(pod, **more)  # type: ignore[arg-type]


def end_sidecar(play: Play, member: str, **more: object) -> None:
    """Ends a sidecar, as the kubelet reports it; the member's ranks run on, and no message comes from them."""
    actor = play[member]
    session, actor.session, actor.unheard = actor.session, "", True
    if session:
        play.tell(SidecarDisconnected(session))
    play.tell(shown(play, member, sidecar_ended=KILLED, **more))


def test_its_pod_is_deleted_and_the_generation_stopped_in_the_step_in_which_the_platform_reports_it() -> None:
    play = running(4, 3)
    end_sidecar(play, "worker-1")
    assert play.deleted() == ["worker-1"]
    assert {send.member for send in play.sent(Stop)} >= {"worker-0", "worker-2", "worker-3"}
    (event,) = play.announced("SidecarExited")
    assert event.reason == (
        "The sidecar of worker-1 ended with exit code 137 and is not restarted, so the master cannot stop the member's "
        "ranks: the job continues without this member, and its pod is deleted."
    )


def test_the_next_generation_begins_when_the_pod_is_gone() -> None:
    play = running(4, 3)
    play.stuck.add("worker-1")
    end_sidecar(play, "worker-1")
    play.run(2.0)
    assert not play.sent(Start)
    play.lose("worker-1", "deleted")
    play.until(play.is_running, 3.0)
    assert "worker-1" not in play.world


def test_a_pod_that_outlives_its_grace_does_not_delay_the_others_for_long() -> None:
    play = running(4, 3)
    play.stuck.add("worker-1")
    end_sidecar(play, "worker-1")
    play.tell(shown(play, "worker-1", phase="terminating", grace=1.0))
    play.until_next(limit=15.0)
    assert "worker-1" not in play.world


def test_the_kubelets_report_that_all_of_the_pod_has_ended_is_enough() -> None:
    play = running(4, 3)
    play.stuck.add("worker-1")
    end_sidecar(play, "worker-1")
    play.tell(shown(play, "worker-1", phase="terminating", grace=1.0, has_ended=True))
    play.until_next(limit=3.0)


def test_a_sidecar_that_ends_while_the_others_stop_is_not_waited_for_but_for_its_pod() -> None:
    play = running(4, 3)
    play["worker-1"].stubborn = True
    play.crash("worker-0")
    end_sidecar(play, "worker-1")
    assert play.deleted() == ["worker-1"]
    play.until_next(limit=5.0)


def test_its_replacement_has_its_rank_index_and_counts_as_that_of_a_failed_pod() -> None:
    play = running(4)
    rank_index = play["worker-1"].rank_index
    end_sidecar(play, "worker-1")
    play.until_next(4)
    assert play["worker-4"].rank_index is None
    assert play.member("worker-4")["rank_index"] == rank_index
    assert [a.relaunches for a in play.actions if isinstance(a, PlacePod) and a.member == "worker-4"] == [1]


def test_a_member_that_never_reported_is_given_up_too_and_the_restarts_are_limited() -> None:
    play = running(4, 4, relaunch_limit=2)
    for _ in range(10):
        newest = max(play.actors, key=lambda name: int(name.rpartition("-")[2]))
        if newest in play.members():
            end_sidecar(play, newest)
        play.run(1.0)
    assert play.exit_code == 1


def test_a_deletion_that_was_refused_is_tried_again() -> None:
    play = running(4, 3)
    play.stuck.add("worker-1")
    end_sidecar(play, "worker-1")
    (request,) = [action for action in play.actions if isinstance(action, DeletePod)]
    play.tell(ActionFailed(request, "the API server does not answer"))
    play.run(2.0)
    assert len(play.deleted()) == 2


def test_a_pod_that_would_not_be_recreated_is_kept_and_not_waited_for() -> None:
    play = running(4, 3)
    end_sidecar(play, "worker-1", has_controller=False)
    assert not play.deleted()
    assert play.announced("PodNotDeleted")
    play.until_next(limit=5.0)


def test_a_new_master_finds_it_as_the_old_one_would() -> None:
    play = running(4, 3)
    play["worker-1"].unheard = True
    after = Play(play.spec, term=2, saved=json.loads(json.dumps(play.saved)), actors=play.actors, now=play.now + 1,
                 master="m2")  # fmt: skip
    after.run(0.05)
    after.tell(shown(after, "worker-1", sidecar_ended=KILLED))
    after.until(lambda: bool(after.deleted()), 1.0)
    after.until_next(limit=5.0)
    assert after.generation == Generation(2, 2)


def test_whose_ranks_have_all_ended_well_is_left_alone() -> None:
    play = running(4, 3)
    play.done("worker-1")
    end_sidecar(play, "worker-1")
    assert not play.deleted()
    assert not play.sent(Stop)
