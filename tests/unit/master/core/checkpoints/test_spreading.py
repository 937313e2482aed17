"""Saves of the checkpoint path: rank 0 writes them, every member receives them, every generation begins from one."""

from __future__ import annotations

from outrider.master.core.actions import SaveStatus
from outrider.master.core.events import ActionFailed, ScaleRequested
from outrider.master.core.handlers.deadlines import SAVE_AGAIN
from outrider.master.core.status.document import AT_REST
from outrider.wire.ids import Generation
from outrider.wire.messages.checkpoints import Kept, Saved
from outrider.wire.messages.generation import Start
from tests.unit.master.core.checkpoints.test_keeping import fetches, kept, reasons
from tests.unit.master.core.play import Play, running


def starts(play: Play) -> list[tuple[int, Generation]]:
    """The save that the Starts of the newest generation name."""
    sent = [each.message for each in play.sent(Start) if isinstance(each.message, Start)]
    newest = max(start.generation for start in sent)
    return [(start.begins_from, start.begins_in) for start in sent if start.generation == newest]


def test_a_save_of_the_checkpoint_path_is_sent_to_all_and_then_replicated() -> None:
    play = running(3)
    play.remember_marked(1, counted=20)
    assert kept(play) == [-1, -1, -1]
    play.run(3.0)
    assert kept(play) == [1, 1, 1]
    assert sorted(fetch.wanted[0].member for fetch in fetches(play)) == ["worker-0", "worker-0"]
    assert all(fetch.marked and not fetch.wanted[0].held for fetch in fetches(play))
    assert reasons(play, "CheckpointReplicated") == [
        "Every rank has save 1 of the checkpoint path (step 20) in memory."
    ]
    assert play.status()["replicated_step"] == 20


def test_a_pending_growth_happens_at_a_replicated_save() -> None:
    play = running(3, least=2)
    play.lose("worker-1")
    play.until_next(2)
    play.until(lambda: bool(play.announced("ResizePending")))
    play.remember_marked(5, counted=50)
    play.run(5.0)
    assert len(play.world) == 3
    assert len(fetches(play, "worker-3")) == 1
    assert starts(play) == [(5, Generation(1, 2))] * 3


def test_each_member_that_has_the_save_sends_it_to_one_at_a_time() -> None:
    play = running(8)
    play.remember_marked(1)
    for there in (1, 3, 7):
        play.run(1.0)
        assert len([actor for actor in play.actors.values() if actor.copies]) >= min(8, there + 1)
    play.run(1.0)
    assert kept(play) == [1] * 8
    givers = [fetch.wanted[0].member for fetch in fetches(play)]
    assert max(givers.count(giver) for giver in givers) <= 3
    assert len(set(givers)) >= 4


def test_a_single_member_keeps_it_at_once() -> None:
    play = running(1)
    play.remember_marked(1)
    play.run(0.1)
    assert kept(play) == [1]
    assert not fetches(play)


def test_the_newest_save_that_is_reported_meanwhile_is_sent_next() -> None:
    play = running(2)
    for number in (1, 2, 3):
        play.remember_marked(number, counted=10 * number)
    play.run(3.0)
    assert kept(play) == [3, 3]
    assert [fetch.step for fetch in fetches(play)] == [1, 3]
    assert play.status()["replicated_step"] == 30


def test_a_save_that_one_member_cannot_receive_is_not_replicated_and_reported_once() -> None:
    play = running(3)
    play["worker-2"].fetch_error = "from worker-0: its rank has begun to write another checkpoint in its place"
    for number in (1, 2):
        play.remember_marked(number, counted=10 * number)
        play.run(3.0)
    assert kept(play) == [-1, -1, -1]
    (reason,) = reasons(play, "ReplicationSkipped")
    assert reason.startswith("worker-2 did not receive a replica of save 1 of the checkpoint path (step 10): from")
    play["worker-2"].fetch_error = ""
    play.remember_marked(3)
    play.run(3.0)
    assert kept(play) == [3, 3, 3]


def test_a_member_that_never_answers_holds_up_the_copies_until_their_deadline() -> None:
    play = running(2)
    play["worker-1"].fetches_in = None
    play.remember_marked(1)
    play.run(60.0)
    assert kept(play) == [-1, -1]
    play["worker-1"].fetches_in = 0.1
    play.remember_marked(2)
    play.run(2.0)
    assert kept(play) == [2, 2]


def test_a_generation_begins_from_the_newest_save_and_members_without_it_receive_it_first() -> None:
    play = running(3)
    play.remember_marked(1)
    play.run(3.0)
    for member in ("worker-1", "worker-2"):
        play[member].fetches_in = None
    play.remember_marked(2)
    play.crash("worker-0")
    for member in ("worker-1", "worker-2"):
        play[member].fetches_in = 0.1
    play.until_next(3)
    assert starts(play) == [(2, Generation(1, 1))] * 3
    assert (
        "worker-1 receives save 2 of the checkpoint path from the memory of worker-0, before generation 1.2 starts."
        in (reasons(play, "CheckpointSent"))
    )


def test_if_a_member_starts_without_it_all_begin_from_a_save_that_all_have() -> None:
    play = running(2)
    play.remember_marked(1)
    play.run(3.0)
    play["worker-1"].fetch_error = "from worker-0: the connection has ended"
    play.remember_marked(2)
    play.crash("worker-0")
    play.until_next(2)
    assert starts(play) == [(1, Generation(1, 1))] * 2
    (reason,) = reasons(play, "CheckpointTransferFailed")
    assert reason == "worker-1 starts without save 2 of the checkpoint path: from worker-0: the connection has ended."


def test_if_no_save_is_in_the_memory_of_all_they_begin_from_none() -> None:
    play = running(2)
    play["worker-1"].fetch_error = "no"
    play.remember_marked(1)
    play.crash("worker-0")
    play.until_next(2)
    assert starts(play) == [(-1, Generation(0, 0))] * 2


def test_the_replacement_of_the_member_with_rank_0_receives_the_others_save() -> None:
    play = running(3, least=3)
    play.remember_marked(4)
    play.run(3.0)
    play.lose("worker-0")
    play.until_next(3)
    assert starts(play) == [(4, Generation(1, 1))] * 3
    assert [fetch.wanted[0].member for fetch in fetches(play, "worker-3")] == ["worker-1"]


def test_a_later_generations_save_goes_before_those_of_an_earlier_one_however_many_they_were() -> None:
    play = running(2)
    play.remember_marked(1)
    play.run(3.0)
    play.crash("worker-0")
    play.until_next(2)
    play.remember_marked(2)
    play.run(3.0)
    lost = play["worker-1"].copies[0]
    play["worker-1"].copies = (
        *play["worker-1"].copies,
        type(lost)(0, 9, False, 2, Generation(1, 1), 1000, marked=True),
    )
    play.crash("worker-0")
    play.until_next(2)
    assert starts(play) == [(2, Generation(1, 2))] * 2


def test_a_new_master_hears_of_the_newest_again_and_has_it_given() -> None:
    play = running(2)
    play.remember_marked(1)
    play.run(3.0)
    sent = len(play.sent(Kept))
    play.remember_marked(1)
    play.run(1.0)
    assert len(play.sent(Kept)) == sent
    assert len(fetches(play)) == 1


def test_a_save_that_comes_to_storage_after_all_have_had_it_is_no_further_checkpoint() -> None:
    play = running(3, least=2)
    play.remember_marked(1, counted=20)
    play.run(3.0)
    play.tell(ScaleRequested(2))
    play.say(play["worker-0"], Saved(play.generation, "/data/last.pt", 20))
    play.run(1.0)
    assert not play.announced("ResizeStarted")
    play.remember_marked(2, counted=30)
    play.until_next(2)
    assert "A checkpoint of step 30 is finished" in reasons(play, "ResizeStarted")[0]


def test_a_save_that_comes_to_storage_before_all_have_it_is_one() -> None:
    play = running(3, least=2)
    play.tell(ScaleRequested(2))
    play.remember_marked(1, counted=20)
    play.say(play["worker-0"], Saved(play.generation, "/data/last.pt", 20))
    play.until_next(2)
    assert starts(play) == [(1, Generation(1, 1))] * 2


def test_a_failed_status_write_does_not_touch_a_saved_generation_that_waits_for_copies() -> None:
    """A Start is sent only for a generation that is saved: every step is checked for that."""
    play = running(2)
    play.remember_marked(1)
    play.run(3.0)
    play["worker-1"].fetches_in = None
    play.remember_marked(2)
    play.crash("worker-0")
    play["worker-1"].fetches_in = AT_REST + 2 * SAVE_AGAIN
    play.until(lambda: bool(reasons(play, "CheckpointSent")))
    play.run(1.0)
    play.saves_status, before = False, len(play.actions)
    play.until(lambda: any(isinstance(action, SaveStatus) for action in play.actions[before:]))
    (newest,) = [action for action in play.actions[before:] if isinstance(action, SaveStatus)]
    play.tell(ActionFailed(newest, "the API server does not answer"))
    play.until(lambda: play.is_running(2))
    assert starts(play) == [(2, Generation(1, 1))] * 2
