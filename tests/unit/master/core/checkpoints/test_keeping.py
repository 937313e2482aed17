"""In-memory checkpoints: which step is replicated, which members receive one before a start, and what waits for it."""

from __future__ import annotations

import dataclasses

import pytest

from outrider.wire.ids import Generation
from outrider.wire.messages.checkpoints import Fetch, Fetched, Kept
from outrider.wire.messages.generation import Start
from tests.unit.master.core.play import Play, job, running


def reasons(play: Play, kind: str) -> list[str]:
    return [each.reason for each in play.announced(kind)]


def kept(play: Play) -> list[int]:
    return [actor.kept for actor in play.actors.values()]


def fetches(play: Play, member: str | None = None) -> list[Fetch]:
    return [each.message for each in play.sent(Fetch, member) if isinstance(each.message, Fetch)]


def held(play: Play) -> dict[str, set[int]]:
    """The ranks whose replicas each member was to store."""
    return {member: {w.rank for fetch in fetches(play, member) for w in fetch.wanted} for member in play.world}


# -- kept ---------------------------------------------------------------------------------------------------------
def test_a_step_is_replicated_once_every_member_has_it() -> None:
    play = running(3)
    play.remember(20, "worker-0", "worker-1")
    play.run(1.0)
    assert kept(play) == [-1, -1, -1]
    play.remember(20, "worker-2")
    play.run(0.1)
    assert kept(play) == [20, 20, 20]
    assert play.status()["replicated_step"] == 20
    assert not fetches(play)


def test_the_replicated_step_never_goes_back_within_a_generation() -> None:
    play = running(2)
    play.remember(30)
    play.remember(20)
    play.run(0.1)
    assert kept(play) == [30, 30]
    assert {each.message.step for each in play.sent(Kept) if isinstance(each.message, Kept)} == {30}


def test_ranks_that_are_at_different_steps_keep_none_of_them() -> None:
    play = running(2)
    for step in range(10, 20):
        play.remember(step, f"worker-{step % 2}")
    play.run(0.1)
    assert kept(play) == [-1, -1]
    assert play.steps_remembered() <= 4


def test_a_member_that_comes_back_is_sent_the_replicated_step_again() -> None:
    play = running(2)
    play.remember(20)
    play.run(0.1)
    play["worker-1"].kept = -1
    play.reconnect("worker-1")
    play.run(1.0)
    assert kept(play) == [20, 20]


def test_a_sharded_step_is_replicated_once_each_partner_has_its_replica() -> None:
    play = running(3, nproc=2)
    play.remember(20, sharded=True)
    play.run(0.2)
    assert kept(play) == [-1, -1, -1]
    play.run(1.0)
    assert kept(play) == [20, 20, 20]
    assert held(play) == {"worker-0": {4, 5}, "worker-1": {0, 1}, "worker-2": {2, 3}}
    assert all(wanted.held for fetch in fetches(play) for wanted in fetch.wanted)


def test_a_partner_that_cannot_store_a_replica_is_reported_once_and_the_step_before_is_kept() -> None:
    play = running(3)
    play.remember(20, sharded=True)
    play.run(1.0)
    play["worker-1"].fetch_error = "from worker-0: it has begun to write another"
    for step in (30, 40):
        play.remember(step, sharded=True)
        play.run(1.0)
    assert kept(play) == [20, 20, 20]
    (reason,) = reasons(play, "ReplicationSkipped")
    assert reason.startswith("worker-1 did not receive a replica of step 30: from worker-0")


def test_shards_are_not_replicated_between_unequal_members_and_it_is_reported_once() -> None:
    play = Play(job(3))
    play.until(lambda: len(play.actors) == 3)
    play["worker-1"].nproc = 2
    play.until_running(3)
    for step in (20, 30):
        play.remember(step, sharded=True)
        play.run(2.0)
    assert kept(play) == [-1, -1, -1]
    (reason,) = reasons(play, "ReplicationSkipped")
    assert reason.startswith(
        "worker-2, with 1 local rank, has no room for replicas of the 2 local ranks of worker-1: sharded "
    )
    (note,) = play.status()["data"]["notes"]
    assert note["sentence"] == reason.rstrip(".")
    assert held(play) == {"worker-0": {3}, "worker-1": {0}, "worker-2": set()}


def test_of_saves_that_are_faster_than_copies_the_newest_is_copied_next() -> None:
    play = running(2)
    for step in (20, 30, 40):
        play.remember(step, sharded=True)
    play.run(3.0)
    assert kept(play) == [40, 40]
    assert [fetch.step for fetch in fetches(play, "worker-0")] == [20, 40]


def test_a_partner_that_never_answers_holds_up_the_copies_until_their_deadline_and_no_step() -> None:
    play = running(2)
    play["worker-1"].fetches_in = None
    play.remember(20, sharded=True)
    play.run(40.0)
    assert play.stage == "running"
    assert kept(play) == [-1, -1]
    play["worker-1"].fetches_in = 0.1
    play.remember(500, sharded=True)
    play.run(2.0)
    assert kept(play) == [500, 500]


@pytest.mark.parametrize("sharded", [False, True])
def test_a_pending_resize_happens_at_a_step_that_a_new_member_can_receive(sharded: bool) -> None:
    play = running(3, least=2)
    play.lose("worker-1")
    play.until_next(2)
    play.until(lambda: bool(play.announced("ResizePending")))
    play.remember(50, sharded=sharded)
    play.run(5.0)
    assert play.status()["replicated_step"] == 50
    assert len(play.world) == (2 if sharded else 3)
    assert len(fetches(play, "worker-3")) == (0 if sharded else 1)


# -- before a start -----------------------------------------------------------------------------------------------
def test_the_survivors_of_a_crash_wait_for_nothing() -> None:
    play = running(3)
    play.remember(20)
    play.crash("worker-1")
    assert play.until_next(3) < 0.2
    assert not fetches(play)


def test_a_new_member_receives_the_others_checkpoint_before_the_generation_starts() -> None:
    play = running(3, least=3)
    play.remember(10)
    play.remember(20)
    play.lose("worker-1")
    play.until_next(3)
    (fetch,) = fetches(play)
    assert (fetch.step, fetch.made_in, fetch.wanted[0].member) == (20, Generation(1, 1), "worker-0")
    assert [copy.step for copy in play["worker-3"].copies] == [20]
    sent = [type(each.message) for each in play.actions if getattr(each, "member", "") == "worker-3"
            and isinstance(getattr(each, "message", None), Fetch | Start)]  # fmt: skip
    assert sent == [Fetch, Start]
    assert reasons(play, "CheckpointReceived") == ["worker-3 has the checkpoint of step 20 in memory, after 0.5 s."]


@pytest.mark.parametrize("error", ["", "from worker-0: the connection has ended"])
def test_a_start_does_not_wait_for_a_copy_that_does_not_come(error: str) -> None:
    play = running(3, least=3)
    play.remember(20)
    play.lose("worker-1")
    play.until(lambda: "worker-3" in play.actors)
    play["worker-3"].fetches_in = 0.1 if error else None
    play["worker-3"].fetch_error = error
    assert play.until_next(3) < (5.0 if error else 20.0)
    (reason,) = reasons(play, "CheckpointTransferFailed")
    assert reason == f"worker-3 starts without the checkpoint of step 20: {error or 'it did not arrive in time'}."


def test_a_member_that_is_lost_during_a_transfer_costs_a_new_generation_and_nothing_else() -> None:
    play = running(3, least=2)
    play.remember(20)
    play.lose("worker-1")
    play.until_next(2)
    play.until(lambda: "worker-3" in play.actors)
    play["worker-3"].fetches_in = 4.0
    play.until(lambda: bool(play.announced("ResizePending")))
    play.save("worker-0")
    play.until(lambda: bool(fetches(play)))
    assert play.stage == "committing"
    play.lose("worker-2")
    play.until_running(2)
    assert play.world == ["worker-0", "worker-3"]
    assert len(fetches(play, "worker-3")) == 2


def test_if_no_version_is_everywhere_all_members_receive_the_newest() -> None:
    play = running(3)
    play.remember(20)
    play["worker-0"].copies = tuple(dataclasses.replace(copy, step=30) for copy in play["worker-0"].copies)
    play.crash("worker-2")
    play.until_next(3)
    assert [copy.step for copy in play["worker-1"].copies] == [20, 30]
    assert [copy.step for copy in play["worker-2"].copies] == [20, 30]


def test_a_lost_shard_comes_from_the_partner_that_holds_it() -> None:
    play = running(3, least=3, nproc=2)
    play.remember(20, sharded=True)
    play.run(1.0)
    play.lose("worker-1")
    play.actions.clear()
    play.until_next(3)
    fetch = fetches(play)[0]
    assert [(w.rank, w.local_rank, w.member, w.held) for w in fetch.wanted] == [
        (2, 0, "worker-2", False),
        (3, 1, "worker-2", False),
    ]
    assert sorted(copy.rank for copy in play["worker-3"].copies) == [2, 3]


def test_a_new_member_stores_the_lost_members_replicas_before_the_next_save() -> None:
    play = running(3, least=3)
    play.remember(20, sharded=True)
    play.run(1.0)
    for lost, made in (("worker-1", "worker-3"), ("worker-0", "worker-4")):
        play.lose(lost)
        play.actions.clear()
        play.until_next(3)
        play.run(1.0)
        own, held = fetches(play, made)
        assert (own.wanted[0].held, held.wanted[0].held) == (False, True)
        ranks = {copy.rank for member in play.world for copy in play[member].copies if not copy.held}
        assert ranks == {0, 1, 2}
        assert len({copy.rank for member in play.world for copy in play[member].copies if copy.held}) == 3
    assert not play.announced("ReplicationSkipped")


def test_shards_of_another_world_size_are_not_sent() -> None:
    play = running(3, least=2)
    play.remember(20, sharded=True)
    play.run(1.0)
    play.lose("worker-1")
    play.actions.clear()
    play.until_next(2)
    assert not fetches(play)


def test_a_reply_to_an_order_of_an_ended_generation_changes_nothing() -> None:
    play = running(2)
    play.remember(20, sharded=True)
    play.crash("worker-0")
    order = fetches(play, "worker-1")[0]
    play.until_next(2)
    play.say(play["worker-1"], Fetched(order.order, order.generation, 20))
    play.run(0.1)
    assert kept(play) == [-1, -1]
