"""Pods of another installation: their sidecars hold another key, and their training continues unsupervised."""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.actions import DeletePod
from outrider.master.core.events import PodSeen, PodsListed, SpecChanged, StopAsked
from outrider.wire.ids import Generation, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Start
from tests.unit.master.core.play import Actor, Play, job, running

LONG = 1200.0
"""Seconds longer than any patience with a silent pod."""
SENTENCE = (
    "train-0, train-1 were created for another Outrider installation and have the key of its master: training in "
    "these pods continues unsupervised, so no generation forms. Delete or restart these pods; a pod that its "
    "controller recreates gets the key of this installation."
)


def stranger(index: int) -> Actor:
    return Actor(MemberId(f"train-{index}"), PodUid(f"old-{index}"), RankIndex(index), stranger=True,
                 running=Generation(5, 2))  # fmt: skip


def reinstalled(strangers: int = 2, least: int = 1, most: int = 3) -> Play:
    """A StatefulSet's pods train, and the master of a new installation sees them for the first time."""
    old = {f"train-{index}": stranger(index) for index in range(strangers)}
    play = Play(replace(job(most, least), is_adopted=True), actors=old)
    play.run(0.1)
    return play


def ends(play: Play, member: str, code: int = 0) -> None:
    actor = play[member]
    phase = "succeeded" if code == 0 else "failed"
    play.tell(PodSeen(actor.id, actor.uid, Role("worker"), actor.rank_index, phase, "the trainer's container ended",
                      exit_code=code, has_another_key=True))  # fmt: skip
    actor.gone = True


def state_of(play: Play, member: str) -> str:
    assert play.saved is not None
    members = play.saved["members"]
    assert isinstance(members, list)
    return str(next(m["state"] for m in members if m["id"] == member))


def test_no_generation_forms_beside_strangers_and_none_of_them_is_deleted() -> None:
    play = reinstalled()
    play.appears("train-2", 2)
    play.run(LONG)
    assert not play.sent(Start)
    assert not play.deleted()
    assert [a.reason for a in play.announced("KeyMismatch")] == [SENTENCE]
    assert play.message == SENTENCE
    assert (state_of(play, "train-0"), state_of(play, "train-2")) == ("unsupervised", "ready")
    assert not play.announced("MemberNotReady")


def test_when_the_last_stranger_is_gone_a_generation_forms_of_the_recreated_pods() -> None:
    play = reinstalled()
    play.appears("train-2", 2)
    for index in range(2):
        play.run(10.0)
        assert not play.sent(Start)
        play.lose(f"train-{index}")
        del play.actors[f"train-{index}"]
        play.appears(f"train-{index}", index)
    play.until_running(2)
    play.run(5.0)
    play.save("train-0")
    play.save("train-0")
    play.until_running(3)
    assert play.world == ["train-0", "train-1", "train-2"]


def test_the_present_members_start_when_the_last_stranger_is_gone_for_good() -> None:
    play = reinstalled(1)
    play.appears("train-2", 2)
    play.run(10.0)
    play.lose("train-0")
    play.until_running(1)
    assert play.world == ["train-2"]


def test_a_terminating_stranger_may_train_until_it_has_ended_and_keeps_its_grace() -> None:
    play = reinstalled(1)
    play.appears("train-2", 2)
    old = play["train-0"]
    going = PodSeen(old.id, old.uid, Role("worker"), old.rank_index, "terminating", "it was deleted", grace=300.0,
                    has_another_key=True)  # fmt: skip
    play.tell(going)
    play.run(200.0)
    assert not play.sent(Start)
    assert not play.deleted()
    play.tell(replace(going, has_ended=True))
    play.until_running(1)


def test_a_stranger_that_was_seen_before_it_ran_blocks_no_generation() -> None:
    play = reinstalled(0)
    pod = PodSeen(MemberId("train-0"), PodUid("old"), Role("worker"), RankIndex(0), "pending", has_another_key=True)
    play.tell(pod)
    play.tell(replace(pod, phase="running"))
    play.appears("train-1", 1)
    play.until_running(1)
    play.run(LONG)
    assert play.world == ["train-1"]
    assert not play.deleted()
    assert len(play.announced("KeyMismatch")) == 1


def test_a_running_generation_is_not_resized_while_it_could_not_form_again() -> None:
    play = reinstalled(0)
    play.appears("train-1", 1)
    play.until_running(1, limit=120.0)
    play.tell(play.pod(stranger(0)))
    play.appears("train-2", 2)
    play.run(LONG)
    assert play.world == ["train-1"]
    assert play.generation == Generation(1, 1)
    play.tell(PodsListed(tuple(play.pod(play[name]) for name in ("train-1", "train-2"))))
    play.save("train-1")
    play.save("train-1")
    play.until_running(2)


def test_a_master_that_has_lost_the_key_lets_the_earlier_generation_continue() -> None:
    before = running(3)
    for actor in before.actors.values():
        actor.stranger = True
    play = Play(before.spec, term=2, saved=before.saved, actors=before.actors, now=before.now, master="m2")
    play.run(LONG)
    assert not play.announced("GenerationAdopted")
    assert not play.announced("MemberSilent")
    assert not play.deleted()
    assert not play.sent(Start)
    assert "worker-0, worker-1, worker-2 were created" in play.message
    for name in ("worker-0", "worker-1", "worker-2"):
        play.lose(name)
    play.until_running(3)
    assert play.generation == Generation(2, 2)
    assert play.world == ["worker-3", "worker-4", "worker-5"]


def test_a_stranger_whose_sidecar_has_ended_is_not_deleted_either() -> None:
    play = reinstalled(1)
    play.appears("train-2", 2)
    play.tell(replace(play.pod(play["train-0"]), sidecar_ended="has ended with exit code 1"))
    play.run(LONG)
    assert not play.deleted()
    assert not play.sent(Start)


def test_a_job_is_over_when_all_strangers_have_ended_with_0() -> None:
    play = reinstalled()
    play.appears("train-2", 2)
    play.run(10.0)
    ends(play, "train-0")
    play.run(10.0)
    assert play.ended() is None
    assert state_of(play, "train-0") == "done"
    ends(play, "train-1")
    play.run(10.0)
    ended = play.ended()
    assert ended is not None
    assert ended.exit_code == 0
    assert [a.reason for a in play.announced("JobSucceeded")] == [
        "All members that ran without supervision have ended with code 0: train-0, train-1."
    ]
    assert not play.deleted()


def test_if_one_stranger_failed_the_rank_indexes_of_all_that_ended_are_vacant_again() -> None:
    for first, second in ((0, 1), (1, 0)):
        play = reinstalled(least=2, most=2)
        ends(play, "train-0", first)
        play.run(10.0)
        ends(play, "train-1", second)
        play.run(10.0)
        assert play.ended() is None
        assert all(play.state_of(each) != "unsupervised" for each in play.members())
        play.appears("train-0-new", 0)
        play.appears("train-1-new", 1)
        play.until_running(2)


def test_a_stranger_without_a_controller_is_to_be_recreated_by_the_user() -> None:
    play = reinstalled(0)
    lone = replace(play.pod(stranger(0)), has_controller=False)
    play.tell(lone)
    assert play.announced("KeyMismatch")[0].reason.endswith(
        "Delete or restart this pod; a recreated pod gets the key of this installation."
    )


def test_a_suspended_job_deletes_strangers_too() -> None:
    play = reinstalled()
    play.tell(SpecChanged(play.spec, suspended=True))
    play.run(1.0)
    assert play.deleted() == ["train-0", "train-1"]
    assert play.message == "The job is suspended."


def test_a_stranger_whose_job_the_user_stops_has_a_grace_because_it_receives_no_order() -> None:
    play = reinstalled(1)
    play.tell(StopAsked("the user says so"))
    deletions = [a for a in play.actions if isinstance(a, DeletePod)]
    assert [(a.member, a.grace) for a in deletions] == [("train-0", 30.0)]
