"""Pods that run and never reach the master are reported and never train beside a generation of their job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.master.core.events import PodSeen
from outrider.wire.ids import MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Start
from outrider.wire.messages.membership import Refused
from tests.unit.master.core.play import Actor, Play, job

LONG = 3600.0


def member(index: int, *, unheard: bool = False, alone_after: float = 600.0, unsupervised: bool = False) -> Actor:
    return Actor(MemberId(f"train-{index}"), PodUid(f"u{index}"), RankIndex(index), unheard=unheard,
                 alone_after=alone_after, unsupervised=unsupervised)  # fmt: skip


def adopted(*actors: Actor, least: int | None = None, most: int | None = None) -> Play:
    most = most or len(actors)
    spec = replace(job(most, least or most), is_adopted=True)
    play = Play(spec, actors={str(actor.id): actor for actor in actors})
    play.run(0.1)
    return play


def unreached(play: Play) -> object:
    assert play.saved is not None
    return play.saved["unreachable"]


def test_a_running_member_that_never_reached_the_master_is_named_with_what_to_check_until_it_does() -> None:
    play = adopted(member(0), member(1, unheard=True, alone_after=0.0))
    play.run(29)
    assert unreached(play) == []
    play.run(5)
    assert unreached(play) == ["train-1"]
    (event,) = play.announced("SidecarCannotReachMaster")
    assert "TCP port 7070" in event.reason
    play["train-1"].unheard = False
    play.connect(play["train-1"])
    play.until_running(2)
    play.run(2)
    assert unreached(play) == []


def test_a_member_without_a_sidecar_is_reported_as_such() -> None:
    """It lacks the label, or was created while the webhook was down: the network is not the cause."""
    play = adopted(member(0), member(1, unheard=True, alone_after=0.0))
    pod = PodSeen(MemberId("train-1"), play["train-1"].uid, Role("worker"), RankIndex(1), "running", has_sidecar=False)
    play.tell(pod)
    play.run(34)
    (event,) = play.announced("SidecarCannotReachMaster")
    assert event.reason.startswith("train-1 has run for 30 s, but it has no sidecar: its template lacks the label ")


def test_no_generation_forms_while_a_silent_pod_may_start_unsupervised_and_it_is_not_deleted() -> None:
    play = adopted(member(0), member(1, unheard=True), least=1)
    play.run(LONG)
    assert not play.sent(Start)
    assert not play.deleted()
    assert "train-1" in play.message
    play["train-1"].unheard = False
    play.connect(play["train-1"])
    play.until_running(2)


def test_a_silent_pod_beside_a_generation_is_deleted_before_it_starts_unsupervised() -> None:
    play = adopted(member(0), least=1, most=2)
    play.until_running(1)
    play.comes(member(1, unheard=True))
    play.run(299)
    assert not play.deleted()
    play.run(2)
    assert play.deleted() == ["train-1"]


@pytest.mark.parametrize("is_late", [False, True], ids=["first", "beside a generation"])
def test_a_pod_that_runs_unsupervised_gets_no_order_and_no_generation_forms_beside_it(is_late: bool) -> None:
    alone = member(1, unsupervised=True)
    play = adopted(member(0), least=1, most=2) if is_late else adopted(member(0), alone, least=1)
    if is_late:
        play.until_running(1)
        play.comes(alone)
    play.run(60)
    assert not play.sent(Start, "train-1")
    assert play.sent(Refused)
    assert play.deleted() == (["train-1"] if is_late else [])
    if not is_late:
        assert not play.sent(Start)
        assert play.announced("RunningUnsupervised")
        assert "unsupervised" in play.message


def test_a_pod_that_no_controller_would_recreate_is_kept_and_reported() -> None:
    play = adopted(member(0), least=1, most=2)
    play.until_running(1)
    alone = member(1, unsupervised=True)
    play.actors["train-1"] = alone
    play.tell(replace(play.pod(alone), has_controller=False))
    play.connect(alone)
    play.run(60)
    assert not play.deleted()
    (kept,) = play.announced("PodNotDeleted")
    assert kept.reason.startswith("train-1 runs unsupervised beside the generations of this job; its pod is not")


def test_a_pod_that_runs_unsupervised_is_reported_once() -> None:
    play = adopted(member(0), member(1, unsupervised=True), least=1)
    for _ in range(3):
        play.run(60)
        play.reconnect("train-1")
    assert len(play.announced("RunningUnsupervised")) == 1


def test_a_pod_that_reached_the_master_in_time_or_is_gone_is_not_deleted() -> None:
    play = adopted(member(0), least=1, most=3)
    play.until_running(1)
    play.comes(member(1, unheard=True))
    play.comes(member(2, unheard=True))
    play.lose("train-1")
    play.run(100)
    play["train-2"].unheard = False
    play.connect(play["train-2"])
    play.run(400)
    assert not play.deleted()
