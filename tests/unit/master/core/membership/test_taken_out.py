"""Pods that run but no longer belong to the job."""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.events import PodGone, StopAsked
from outrider.wire.messages.generation import Stop
from outrider.wire.messages.membership import Finish, Refused
from tests.unit.master.core.adopted import adopted
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Play, running

TAKEN = "its label outrider.dev/job was taken away"


def take_out(play: Play, member: str) -> None:
    actor = play[member]
    play.tell(PodGone(actor.id, actor.uid, TAKEN, may_run_on=True))


def refusals(play: Play, member: str) -> list[Refused]:
    return [send.message for send in play.sent(Refused, member) if isinstance(send.message, Refused)]


def test_its_ranks_are_stopped_and_another_pod_replaces_it() -> None:
    play = running(3, 2)
    take_out(play, "worker-1")
    (finish,) = play.sent(Finish)
    assert (finish.member, finish.reason) == (
        "worker-1",
        f"worker-1 no longer belongs to the job: {TAKEN}. Its ranks are stopped.",
    )
    play.until_next(2)
    play.save("worker-0")
    play.until(lambda: "worker-3" in play.actors)
    assert not play.deleted(), "the pod does not belong to the job"
    assert [fault.kind for fault in play.faults()] == ["MemberLost"]


def test_an_unconnected_pod_is_refused_when_it_connects() -> None:
    play = running(3, 2)
    play["worker-1"].session = ""
    take_out(play, "worker-1")
    play.connect(play["worker-1"])
    (refused,) = refusals(play, "worker-1")
    assert refused.reason == f"worker-1 is no longer a member of job 'digits': {TAKEN}."
    assert refused.retry_after < 0, "for good: its sidecar ends what runs there"


def test_it_is_a_member_again_when_the_label_is_back() -> None:
    play = adopted(2)
    take_out(play, "train-1")
    actor = play["train-1"]
    play.tell(play.pod(actor))
    actor.running, actor.highest = actor.stopped, actor.stopped
    play.connect(actor)
    assert not refusals(play, "train-1")
    play.until(lambda: "train-1" in play.ready(), 10)


def test_the_next_master_refuses_a_pod_that_is_no_longer_listed() -> None:
    """Its label was removed while no master watched, or it was deleted by force and its node does not know that."""
    before = running(3, 2)
    taken = replace(before["worker-1"])
    before["worker-1"].gone = True
    after = successor(before)
    after.until(lambda: after.stage != "rebuilding")
    after.connect(taken)
    (refused,) = refusals(after, "worker-1")
    assert refused.reason == (
        f"worker-1 is no longer a member of job 'digits': the platform no longer lists its pod (uid {taken.uid}) as "
        "one of the job's pods."
    )
    assert refused.retry_after < 0


def test_before_the_pods_are_listed_no_pod_is_refused_for_good() -> None:
    after = successor(running(3, 2))
    after.connect(after["worker-1"])
    assert [refused.retry_after for refused in refusals(after, "worker-1")] == [0.2]


def test_a_stop_that_is_requested_of_a_new_master_has_its_grace_periods() -> None:
    after = successor(running(2))
    after.tell(StopAsked("its ElasticJob is being deleted"))
    after.until(lambda: after.ended() is not None, 60)
    assert {send.member for send in after.sent(Stop)} == {"worker-0", "worker-1"}
    assert not after.deleted()
