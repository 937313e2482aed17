"""A parameter server moves to a pod with other resources: created first, used after a checkpoint, one at a time."""

from __future__ import annotations

from dataclasses import replace

from outrider.master.core.actions import CreatePod
from outrider.master.core.events import SpecChanged, StopAsked
from outrider.wire.messages.checkpoints import SaveState
from tests.unit.master.core.ps_play import PsPlay, created, stopped, training


def resized(play: PsPlay, *resources: str) -> None:
    play.spec = replace(play.spec, ps_resources=resources)
    play.tell(SpecChanged(play.spec))


def test_a_ps_of_another_size_is_made_first_and_takes_over_behind_a_checkpoint() -> None:
    play = training(2, 1, ps_resources=("memory 4Gi", "memory 4Gi"))
    resized(play, "memory 4Gi", "memory 8Gi")
    play.run(10)
    assert created(play) == [("ps-2", None)]
    assert play.holder("ps", 1).id == "ps-1", "it serves until a checkpoint is finished"
    assert stopped(play) == set()
    assert [a.place for a in play.actions if isinstance(a, CreatePod)] == [1]
    assert "its container has memory 4Gi, but memory 8Gi is requested" in play.announced("MemberDraining")[0].reason
    play.save("chief-0")
    play.until(lambda: play.is_running() and play.holder("ps", 1).id == "ps-2")
    assert "moves from ps-1 to a new pod now: the checkpoint of step" in play.announced("PsMigrationStarted")[0].reason
    assert stopped(play) == {"ps-1"}
    assert play.deleted() == ["ps-1"]
    assert play.restarts_used() == 0
    play.run(5)
    assert len(created(play)) == 1


def test_parameter_servers_are_moved_one_at_a_time() -> None:
    play = training(2, 1, ps_resources=("cpu 1", "cpu 1"))
    resized(play, "cpu 2", "cpu 2")
    play.run(10)
    assert created(play) == [("ps-2", None)]
    play.save("chief-0")
    play.until_running()
    play.run(20)
    assert created(play) == [("ps-2", None), ("ps-3", None)]
    assert play.holder("ps", 1).id == "ps-1"
    play.save("chief-0", "/data/ckpt-2.pt")
    play.until(lambda: play.is_running() and play.holder("ps", 1).id == "ps-3")


def test_a_ps_for_which_no_checkpoint_comes_is_moved_all_the_same() -> None:
    play = training(1, 1, ps_resources=("cpu 1",), grow_patience=30.0)
    resized(play, "cpu 2")
    play.until(lambda: play.is_running() and play.holder("ps").id == "ps-1")
    assert "no checkpoint was finished in 30 s" in play.announced("PsMigrationStarted")[0].reason


def test_a_ps_whose_new_pod_was_lost_when_the_patience_for_a_checkpoint_was_over_is_moved_after_another_one() -> None:
    """Seed 300."""
    play = training(1, 1, ps_resources=("cpu 1",), grow_patience=20.0)
    resized(play, "cpu 2")
    play.until(lambda: any(each.member == "ps-1" for each in play.announced("MemberReady")))
    play.room = 3
    play.lose("ps-1")
    play.run(25)
    assert created(play)[-1] == ("ps-2", None)
    assert (play.holder("ps").id, play.announced("PsMigrationStarted")) == ("ps-0", [])
    late = play["ps-2"]
    late.waits = False
    play.connect(late)
    play.report(late)
    play.until(lambda: play.is_running() and play.holder("ps").id == "ps-2")
    assert "no checkpoint was finished in 20 s" in play.announced("PsMigrationStarted")[0].reason


def test_a_ps_that_has_the_requested_resources_again_stays_and_the_new_pod_is_deleted() -> None:
    play = training(1, 1, ps_resources=("memory 4Gi",))
    play.room = 3
    resized(play, "memory 400Gi")
    play.run(5)
    resized(play, "memory 4Gi")
    play.save("chief-0")
    play.run(5)
    assert play.announced("DrainCancelled")[0].reason == (
        "ps-0 no longer has to leave: its container has the requested resources."
    )
    assert play.deleted() == ["ps-1"]
    assert (play.holder("ps").id, stopped(play)) == ("ps-0", set())


def test_a_ps_that_is_lost_while_its_larger_pod_comes_is_replaced_by_that() -> None:
    play = training(1, 1, ps_resources=("memory 4Gi",))
    resized(play, "memory 8Gi")
    play.run(5)
    play.lose("ps-0")
    play.until_running()
    assert (play.holder("ps").id, created(play)) == ("ps-1", [("ps-1", None)])


def test_a_new_master_moves_a_ps_that_an_earlier_one_was_to_move() -> None:
    before = training(2, 1, ps_resources=("memory 4Gi", "memory 4Gi"))
    resized(before, "memory 8Gi", "memory 4Gi")
    before.run(10)
    after = PsPlay(before.spec, term=2, saved=before.saved, actors=before.actors, now=before.now + 1, master="m2")
    after.until_running()
    after.run(10)
    after.save("chief-0")
    after.until(lambda: after.is_running() and after.holder("ps").id == "ps-2")
    assert created(after) == []


def test_a_chief_that_can_be_asked_to_saves_before_a_ps_moves() -> None:
    play = training(1, 1, ps_resources=("memory 4Gi",))
    play.offer("chief-0")
    resized(play, "memory 8Gi")
    play.until(lambda: play.is_running() and play.holder("ps").id == "ps-1")
    assert [a.member for a in play.sent(SaveState)] == ["chief-0"]
    assert play.announced("SaveRequested")[0].reason == (
        "chief-0 is requested to save, because ps-0 will move to a new pod."
    )
    assert "the checkpoint of step" in play.announced("PsMigrationStarted")[0].reason


def test_a_chief_that_could_not_save_makes_its_next_checkpoint_and_the_ps_moves_then() -> None:
    play = training(1, 1, ps_resources=("memory 4Gi",))
    play.offer("chief-0", error="AbortedError: the ps is away")
    resized(play, "memory 8Gi")
    play.run(10)
    assert "the move waits for the next checkpoint" in play.announced("StateNotSaved")[0].reason
    assert play.holder("ps").id == "ps-0"
    play.save("chief-0")
    play.until(lambda: play.is_running() and play.holder("ps").id == "ps-1")


def test_the_end_of_the_job_waits_for_no_save_whose_servers_end_too() -> None:
    play = training(1, 1)
    play.offer("chief-0")
    play.tell(StopAsked("enough"))
    play.until(lambda: play.ended() is not None)
    assert play.sent(SaveState) == []
