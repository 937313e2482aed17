"""Pods of another installation: their sidecars hold another key, and what runs in them goes on without this master."""

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
    "train-0, train-1 were created for another Outrider installation and have the key of its master: training there "
    "continues unsupervised, so no generation forms. Delete or restart these pods; a pod that its controller recreates "
    "gets the key of this installation."
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


def test_no_generation_forms_beside_them_and_none_of_them_is_deleted() -> None:
    play = reinstalled()
    play.appears("train-2", 2)
    play.run(LONG)
    assert not play.sent(Start)
    assert not play.deleted()
    assert [a.reason for a in play.announced("KeyMismatch")] == [SENTENCE]
    assert play.message == SENTENCE
    assert (state_of(play, "train-0"), state_of(play, "train-2")) == ("unsupervised", "ready")
    assert not play.announced("MemberNotReady")


def test_when_the_last_of_them_is_gone_the_world_forms_of_those_that_were_made_anew() -> None:
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


def test_those_that_are_there_begin_when_the_last_of_them_is_gone_for_good() -> None:
    play = reinstalled(1)
    play.appears("train-2", 2)
    play.run(10.0)
    play.lose("train-0")
    play.until_running(1)
    assert play.world == ["train-2"]


def test_one_that_terminates_may_train_until_all_of_it_has_ended_and_keeps_its_grace() -> None:
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


def test_one_that_was_seen_before_it_ran_has_nobody_who_started_it_and_stands_in_nobodys_way() -> None:
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


def test_a_world_that_runs_already_does_not_change_its_size_while_it_could_not_form_again() -> None:
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


def test_a_master_that_has_lost_the_key_lets_the_world_of_the_one_before_it_train_on() -> None:
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


def test_one_whose_sidecar_has_ended_is_left_alone_too() -> None:
    play = reinstalled(1)
    play.appears("train-2", 2)
    play.tell(replace(play.pod(play["train-0"]), sidecar_ended="has ended with exit code 1"))
    play.run(LONG)
    assert not play.deleted()
    assert not play.sent(Start)


def test_a_job_is_over_when_all_of_them_have_ended_well() -> None:
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


def test_where_one_of_them_failed_the_places_of_all_that_ended_are_free_again() -> None:
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


def test_one_that_its_user_makes_for_no_controller_is_to_be_made_by_him() -> None:
    play = reinstalled(0)
    lone = replace(play.pod(stranger(0)), has_controller=False)
    play.tell(lone)
    assert play.announced("KeyMismatch")[0].reason.endswith(
        "Delete or restart this pod; a recreated pod gets the key of this installation."
    )


def test_a_job_that_is_suspended_lets_them_go_too() -> None:
    play = reinstalled()
    play.tell(SpecChanged(play.spec, suspended=True))
    play.run(1.0)
    assert play.deleted() == ["train-0", "train-1"]
    assert play.message == "The job is suspended."


def test_one_whose_job_its_user_ends_has_a_grace_because_nobody_can_tell_it() -> None:
    play = reinstalled(1)
    play.tell(StopAsked("the user says so"))
    deletions = [a for a in play.actions if isinstance(a, DeletePod)]
    assert [(a.member, a.grace) for a in deletions] == [("train-0", 30.0)]
