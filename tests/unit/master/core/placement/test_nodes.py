"""Nodes that are not Ready or gone, and pods that are stuck terminating, blocked or refused."""

from __future__ import annotations

import pytest

from outrider.master.core.actions import CreatePod, DeletePod
from outrider.master.core.events import ActionFailed, CreateRejected, NodeSeen, PodGone, PodSeen
from outrider.master.core.faults import delete_pod
from outrider.master.core.membership import pod_deletion
from outrider.master.core.placement import pod_blocked
from outrider.wire.ids import NO_GENERATION, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.membership import Finish, Leaving
from tests.unit.master.core.play import Play, job, running

NODE = "node-2"
STOPPED_POSTING = "Kubelet stopped posting node status"
NOT_READY = NodeSeen(NODE, False, STOPPED_POSTING)
GONE = NodeSeen(NODE, False, "its Node object was deleted", is_gone=True)
READY = NodeSeen(NODE, True)


def pod(play: Play, member: str, **changes: object) -> PodSeen:
    actor = play[member]
    shown: dict[str, object] = {"phase": "running", "node": NODE, **changes}
    return PodSeen(actor.id, actor.uid, Role("worker"), actor.rank_index, **shown)  # type: ignore[arg-type]


def on_node(
    members: int = 4, least: int | None = None, there: tuple[str, ...] = ("worker-1",), **policy: object
) -> Play:
    """A running job with some members on the node of these tests."""
    play = running(members, least, **policy)
    for member in there:
        play.tell(pod(play, member))
    play.actions.clear()
    return play


def left_to_its_owner(play: Play) -> None:
    play.adopt()


def deleted_slowly(play: Play, member: str, grace: float, ahead: float = 0.0, **changes: object) -> None:
    """Deletes a pod whose kubelet is frozen, so that it stays. `ahead`: seconds by which the API server's clock is."""
    ends_at = play.now + play.unix_offset + grace + ahead
    reason = f"it was deleted with {grace:.0f} s of grace"
    play.tell(pod(play, member, phase="terminating", reason=reason, grace=grace, ends_at=ends_at, **changes))


def deletions(play: Play, member: str) -> list[DeletePod]:
    return [a for a in play.actions if isinstance(a, DeletePod) and a.member == member]


def created(play: Play) -> list[CreatePod]:
    return [a for a in play.actions if isinstance(a, CreatePod)]


# -- nodes --------------------------------------------------------------------------------------------------------
def test_a_member_that_reports_from_a_node_that_is_not_ready_is_left_alone() -> None:
    play = on_node()
    play.tell(NOT_READY)
    play.tell(NOT_READY)
    play.run(60)
    assert play.generation.number == 1
    assert not play.deleted()
    assert not created(play)
    (event,) = play.announced("NodeNotReady")
    assert event.reason == (
        "Node node-2 is not Ready (Kubelet stopped posting node status). Members that still report from it continue "
        "training: worker-1."
    )
    play.tell(READY)
    assert [a.reason for a in play.announced("NodeReady")] == ["Node node-2 is Ready again."]


def test_a_node_without_members_of_the_job_is_nothing_to_it() -> None:
    play = running(2)
    assert play.tell(READY) == []
    assert play.tell(NOT_READY) == []


def test_half_of_the_job_that_is_silent_on_a_node_that_is_not_ready_is_not_the_masters_own_silence() -> None:
    play = on_node(4, 1, there=("worker-1", "worker-2", "worker-3"), max_relaunches=0)
    for member in ("worker-1", "worker-2", "worker-3"):
        play.freeze(member)
    play.run(10)
    assert play.announced("MasterNetworkSuspected")
    play.tell(NOT_READY)
    play.run(0.5)
    verdicts = play.announced("MemberSilent")
    assert {a.member for a in verdicts} == {"worker-1", "worker-2", "worker-3"}
    assert "node node-2 is not Ready" in verdicts[0].reason


def test_a_master_that_hears_no_member_deletes_none_on_a_node_that_is_not_ready_either() -> None:
    """Silence on healthy nodes may be caused by the master's own network."""
    play = on_node()
    play.creates_pods = False
    for member in ("worker-0", "worker-1", "worker-2", "worker-3"):
        play[member].unheard = True
    play.tell(NOT_READY)
    play.run(3 * play.spec.replace_after)
    assert [each.member for each in play.announced("MemberSilent")] == ["worker-1"]
    assert not deletions(play, "worker-1")


def test_a_pod_that_waits_for_a_kubelet_that_is_not_heard_is_replaced() -> None:
    play = begun(2, 1)
    come(play, 0)
    waits(play, 1, "", cannot_start=False)
    play.tell(NOT_READY)
    play.run(0.1)
    assert deletions(play, "worker-1")[0].reason == (
        "worker-1 has not started, and node node-2 is not Ready (Kubelet stopped posting node status); "
        "its pod is deleted."
    )
    assert [a.rank_index for a in created(play)] == [None]


def test_what_a_paused_master_reads_of_a_node_is_judged_when_it_has_read_all() -> None:
    play = begun(2, 1)
    come(play, 0)
    waits(play, 1, "", cannot_start=False)
    play.tell(NOT_READY)
    play.tell(READY)
    play.run(5.0)
    assert not deletions(play, "worker-1")


def test_a_silent_member_that_a_peer_reaches_is_left_alone_though_its_node_is_not_ready() -> None:
    play = on_node()
    play["worker-1"].unheard = True
    play.tell(NOT_READY)
    play.run(60)
    assert play.generation.number == 1
    assert not play.announced("MemberSilent")


def test_a_member_on_a_node_that_was_deleted_trains_on_until_its_replacement_is_ready() -> None:
    play = on_node()
    play.tell(GONE)
    assert play.announced("MemberDraining")[0].member == "worker-1"
    play.until_next(4, 10)
    assert play.world == ["worker-0", "worker-4", "worker-2", "worker-3"]
    assert not play.faults()
    play.run(60)
    assert not play.deleted(), "the platform takes the pods of a node that it has deleted"
    play.tell(READY)
    assert play.deleted() == ["worker-1"], "and this one came back"


def test_a_member_whose_node_comes_back_before_its_replacement_stays() -> None:
    play = on_node()
    left_to_its_owner(play)
    play.tell(GONE)
    play.tell(READY)
    assert play.announced("DrainCancelled")[0].reason == (
        "worker-1 no longer has to leave: node node-2 is part of the cluster again."
    )
    play.run(60)
    assert not play.deleted()
    assert play.world == ["worker-0", "worker-1", "worker-2", "worker-3"]
    assert play.generation.number == 1


def test_a_member_that_left_the_generation_with_its_node_comes_back_with_it() -> None:
    play = on_node(least=2)
    left_to_its_owner(play)
    play.tell(GONE)
    play.until_next(3, 60)
    play.tell(READY)
    play.until_next(4, 700)
    assert not play.deleted()


def test_a_member_that_has_another_reason_to_leave_leaves_although_its_node_comes_back() -> None:
    play = on_node()
    left_to_its_owner(play)
    play.tell(GONE)
    play.say(play["worker-1"], Leaving("SIGTERM", 30))
    play.tell(READY)
    assert not play.announced("DrainCancelled")


def test_a_silent_member_on_a_node_that_was_deleted_is_given_up_at_once_and_by_force() -> None:
    play = on_node()
    play.freeze("worker-1")
    play.until(lambda: bool(play.announced("MemberSilent")), 10)
    play.tell(GONE)
    play.run(0.01)
    (deletion,) = deletions(play, "worker-1")
    assert deletion.grace == 0
    assert "node node-2 is no longer part of the cluster" in deletion.reason
    assert "by force" in deletion.reason


# -- pods that are to go ------------------------------------------------------------------------------------------
def test_a_pod_that_is_deleted_is_replaced_while_it_trains() -> None:
    play = on_node()
    deleted_slowly(play, "worker-1", 30)
    assert play.announced("MemberDraining")[0].reason == (
        "worker-1 has to leave (it was deleted with 30 s of grace) and has 30 s; a replacement is started."
    )
    play.until_next(4, 10)
    assert play.world == ["worker-0", "worker-4", "worker-2", "worker-3"]
    assert play.sent(Finish, "worker-1")


def test_the_shortest_grace_that_anybody_tells_counts() -> None:
    play = on_node(4, 3)
    play.creates_pods = False
    play.say(play["worker-1"], Leaving("SIGTERM", 30))
    deleted_slowly(play, "worker-1", 8)
    assert "has only 8 s" in play.announced("MemberDraining")[1].reason
    took = play.until_next(3, 10)
    assert 2.9 < took < 3.5, "5 s before the end"


def test_a_grace_that_is_nearly_over_is_believed_whatever_was_given() -> None:
    """A new master sees when the grace ends, not when it began."""
    play = on_node(4, 3)
    play.creates_pods = False
    ends_at = play.now + play.unix_offset + 6
    play.tell(pod(play, "worker-1", phase="terminating", reason="it was deleted", grace=600.0, ends_at=ends_at))
    assert play.until_next(3, 10) < 1.5


def test_a_clock_that_differs_does_not_lengthen_the_grace() -> None:
    play = on_node(4, 3)
    play.creates_pods = False
    ends_at = play.now + play.unix_offset + 3600
    play.tell(pod(play, "worker-1", phase="terminating", reason="it was deleted", grace=6.0, ends_at=ends_at))
    assert play.until_next(3, 10) < 1.5


def test_a_pod_that_stays_on_a_frozen_node_goes_by_force_when_its_grace_has_run_out() -> None:
    play = on_node()
    play.stuck = {"worker-1"}
    play.tell(NOT_READY)
    deleted_slowly(play, "worker-1", 15)
    play.until_next(4, 12)
    play.run(40)
    forced = [d for d in deletions(play, "worker-1") if d.grace == 0]
    assert [d.reason for d in forced] == [
        "The pod of worker-1 is deleted by force: its grace period ended 10 s ago, and node node-2 is not Ready "
        "(Kubelet stopped posting node status)."
    ]
    assert play.announced("PodForceDeleted")


def test_a_pod_that_stays_on_a_healthy_node_is_reported_once_and_never_forced() -> None:
    """The cause is a finalizer, or a process that the kernel does not end."""
    play = on_node()
    play.stuck = {"worker-1"}
    deleted_slowly(play, "worker-1", 15)
    play.run(300)
    assert len(play.announced("PodStuckTerminating")) == 1
    assert "its grace period ended 10 s ago: it has a finalizer" in play.announced("PodStuckTerminating")[0].reason
    assert all(d.grace > 0 for d in deletions(play, "worker-1"))
    assert play.is_running(4)
    play.tell(NOT_READY)
    play.run(0.1)
    assert deletions(play, "worker-1")[-1].grace == 0


def test_a_pod_that_stays_though_all_of_it_has_ended_goes_by_force_on_a_node_that_is_well_too() -> None:
    play = on_node()
    play.stuck = {"worker-1"}
    deleted_slowly(play, "worker-1", 15)
    play.run(14)
    deleted_slowly(play, "worker-1", 1, has_ended=True)
    play.run(9)
    assert all(d.grace > 0 for d in deletions(play, "worker-1"))
    play.run(3)
    assert deletions(play, "worker-1")[-1].grace == 0
    assert play.announced("PodForceDeleted")[0].reason == (
        "The pod of worker-1 is deleted by force: its grace period ended 10 s ago, and its kubelet reports that "
        "all of its containers have ended."
    )


def test_a_forced_deletion_that_is_refused_is_tried_again() -> None:
    play = on_node()
    play.stuck = {"worker-1"}
    play.tell(NOT_READY)
    deleted_slowly(play, "worker-1", 1)
    play.until(lambda: bool(play.announced("PodForceDeleted")), 20)
    del play.actors["worker-1"]
    play.tell(ActionFailed(deletions(play, "worker-1")[-1], "the API server is not reached"))
    play.run(pod_deletion.STUCK_AGAIN + 1)
    assert len([d for d in deletions(play, "worker-1") if d.grace == 0]) == 2


def test_a_pod_that_was_given_up_and_stays_is_forced_too() -> None:
    play = on_node()
    play.stuck = {"worker-1"}
    play.freeze("worker-1")
    play.tell(NOT_READY)
    play.until(lambda: bool(play.announced("SilentMemberDeleted")), 60)
    reason = play.announced("SilentMemberDeleted")[0].reason
    assert " Last heard from 127.0.0.1 on node node-2: it was running generation 1.1 at step " in reason
    deleted_slowly(play, "worker-1", delete_pod.DELETE_GRACE)
    play.run(20)
    assert [d.grace for d in deletions(play, "worker-1")] == [delete_pod.DELETE_GRACE, 0]
    assert not play.announced("MemberDraining"), "it was our own word"


def test_the_next_pod_of_a_stateful_set_with_its_name_takes_its_rank_index() -> None:
    play = on_node(2, 1)
    left_to_its_owner(play)
    play.tell(NOT_READY)
    play.stuck = {"worker-1"}
    deleted_slowly(play, "worker-1", 2)
    assert play.announced("MemberDraining")[0].reason.endswith("and has 2 s; its owner creates a replacement.")
    play.until_next(1, 10)
    play.until(lambda: bool(play.announced("PodForceDeleted")), 20)
    assert not created(play)
    actor = play["worker-1"]
    play.tell(PodGone(actor.id, actor.uid, "deleted"))
    actor.uid, actor.session, actor.running, actor.gone = PodUid("another"), "", NO_GENERATION, False
    play.tell(pod(play, "worker-1", node="node-1"))
    play.connect(actor)
    play.save("worker-0")
    play.until_running(2)


def test_a_pod_that_no_controller_would_make_again_is_never_deleted() -> None:
    play = running(3, 2)
    left_to_its_owner(play)
    play.tell(pod(play, "worker-1", has_controller=False))
    play.freeze("worker-1")
    play.until_next(2, 10)
    play.run(100)
    assert not play.deleted()
    assert len(play.announced("PodNotDeleted")) == 1
    play.thaw("worker-1")
    play.run(1)
    play.save("worker-0")
    play.until_running(3, 10)


# -- pods that cannot start ---------------------------------------------------------------------------------------
PULL = "ImagePullBackOff: the image none:1 of trainer cannot be pulled"


def waits(play: Play, number: int, reason: str = f"{PULL}: not found", *, cannot_start: bool = True) -> None:
    member, uid, index = MemberId(f"worker-{number}"), PodUid(f"u{number}"), RankIndex(number)
    play.tell(PodSeen(member, uid, Role("worker"), index, "pending", reason, node=NODE, cannot_start=cannot_start))


def come(play: Play, number: int) -> None:
    from tests.unit.master.core.play import Actor

    actor = Actor(MemberId(f"worker-{number}"), PodUid(f"u{number}"), RankIndex(number))
    play.actions.clear()
    play.actors[actor.id] = actor
    play.tell(pod(play, actor.id))
    play.connect(actor)
    play.report(actor)


def begun(members: int, least: int) -> Play:
    play = Play(job(members, least))
    play.creates_pods = False
    play.run(0.1)
    return play


def test_the_others_begin_without_a_pod_whose_image_cannot_be_pulled_and_it_is_reported_once() -> None:
    play = begun(3, 1)
    waits(play, 2)
    waits(play, 2, PULL)
    waits(play, 2)
    (event,) = play.announced("PodBlocked")
    assert (
        event.reason
        == f"worker-2 cannot start on node node-2: {PULL}: not found. The kubelet keeps retrying; the job does not "
        "wait for worker-2."
    )
    assert play.member("worker-2")["blocked"] == f"{PULL}: not found", "the first says the most"
    come(play, 0)
    come(play, 1)
    assert len(play.world) == 2
    play.run(600)
    assert not play.deleted()
    assert not created(play)


def test_it_joins_when_the_image_is_there() -> None:
    play = begun(2, 1)
    waits(play, 1)
    come(play, 0)
    play.until_running(1)
    play.run(100)
    come(play, 1)
    play.run(1)
    play.save("worker-0")
    play.until_running(2)


def test_a_job_whose_pods_cannot_start_reports_it_and_does_not_fail() -> None:
    play = begun(2, 2)
    waits(play, 0)
    waits(play, 1)
    play.run(pod_blocked.PATIENCE * play.spec.start_patience + 1)
    (event,) = play.announced("JobCannotStart")
    assert "2 members cannot start, and a generation needs 2 members" in event.reason
    assert f"worker-0: {PULL}: not found" in play.message
    play.run(3600)
    assert len(play.announced("JobCannotStart")) == 1
    assert play.phase == "pending"
    come(play, 0)
    come(play, 1)
    play.until_running(2)


# -- pods that may not be made ------------------------------------------------------------------------------------
QUOTA = 'pods "digits-{}" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'


def refuse(play: Play, action: CreatePod, *, is_final: bool = False) -> None:
    why = "unable to create new content in namespace t because it is being terminated"
    play.tell(CreateRejected(action, why if is_final else QUOTA.format(action.member), is_final))


def test_a_quota_is_reported_once_and_retried_slowly_and_the_job_does_not_wait() -> None:
    play = begun(4, 2)
    for action in created(play)[2:]:
        refuse(play, action)
    assert len(play.announced("CreateRejected")) == 1
    assert "exceeded quota: few" in play.announced("CreateRejected")[0].reason
    play.actions.clear()
    for _ in range(20):
        before = len(created(play))
        play.until(lambda before=before: len(created(play)) > before, 100)
        refuse(play, created(play)[-1])
    assert play.now > 300
    assert not play.announced("CreateRejected")
    come(play, 0)
    come(play, 1)
    assert len(play.world) == 2


def test_in_a_terminating_namespace_no_pod_is_requested_any_more() -> None:
    play = begun(3, 1)
    come_first = created(play)
    for action in come_first:
        refuse(play, action, is_final=True)
    assert len(play.announced("NamespaceTerminating")) == 1
    play.actions.clear()
    play.run(600)
    assert not created(play)
    assert not play.announced("CreateFailed")


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_a_clock_that_differs_by_an_hour_takes_no_pod_for_one_whose_grace_is_over(ahead: float) -> None:
    play = on_node(4, 3)
    deleted_slowly(play, "worker-1", 30, ahead)
    play.run(30)
    assert not play.announced("PodStuckTerminating")
