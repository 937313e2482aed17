"""Growing, shrinking, spares, leaving, and replacements that may or may not be made."""

from __future__ import annotations

import pytest

from outrider.master.core.actions import CreatePod, Deliver
from outrider.master.core.events import Asked, PodSeen, RestartRejected, RestartRequested, ScaleRequested
from outrider.master.core.scaling.rehearsal import refusal
from outrider.wire.ids import Role
from outrider.wire.messages.diagnostics import REHEARSAL, Ask
from outrider.wire.messages.membership import Finish, Leaving
from outrider.wire.messages.report import RankProgress, Report
from tests.unit.master.core.play import Play, job, running


def test_a_lost_member_is_replaced_by_the_next_id_with_the_same_rank_index() -> None:
    play = running(4)
    play.lose("worker-1")
    (create,) = [a for a in play.actions if isinstance(a, CreatePod)]
    assert (create.member, create.rank_index) == ("worker-4", 1)
    assert play.until_running(4) < 3.5
    assert play.places()["worker-4"].first_rank == 1


def test_with_a_spare_a_lost_member_costs_no_start() -> None:
    play = running(4, spares=1)
    play.run(4)
    play.lose("worker-1")
    assert play.until_running(4) < 0.1
    play.run(5)
    assert play.member("worker-5")["rank_index"] is None, "there is a spare again"


def test_if_fewer_are_enough_the_survivors_continue_at_once() -> None:
    play = running(4, 2)
    play.lose("worker-3")
    assert play.until_running(3) < 0.1


def test_the_replacement_joins_a_smaller_generation_at_the_next_checkpoint() -> None:
    play = running(4, 2)
    play.lose("worker-3")
    play.run(20)
    assert len(play.world) == 3
    assert play.announced("ResizePending")
    play.save("worker-0")
    assert play.until_running(4) < 0.2


def test_without_a_checkpoint_growth_comes_when_its_patience_is_over() -> None:
    play = running(4, 2, grow_patience=30.0)
    play.lose("worker-3")
    play.run(20)
    assert len(play.world) == 3
    play.until_running(4, 20)


def goes_on_from_what_no_save_was_seen_of(play: Play) -> None:
    for member in play.world:
        row = RankProgress(0, 3, 0.0, "step", base=0, opened=True)
        play.say(play[member], Report(play.generation, "running", 3, ranks=(row,)))
    assert play.announced("ResumeUnknown")


def unseen(members: int, least: int) -> Play:
    """A job that was restarted once, and whose ranks have not reported yet what they have loaded."""
    play = running(members, least, grow_patience=600.0)
    play.run(2)
    for actor in play.actors.values():
        actor.has_pages = False  # its reports are written here
    play.crash("worker-0")
    play.until(lambda: play.is_running() and play.generation.number == 2, 10)
    return play


def test_a_resize_waits_a_minute_if_no_save_is_ever_seen() -> None:
    play = unseen(2, 1)
    goes_on_from_what_no_save_was_seen_of(play)
    play.tell(ScaleRequested(1))
    (event,) = play.announced("ResizePending")
    assert event.reason.endswith("checkpoint or in 60 s, because no save of the script was ever seen.")
    assert 59 < play.until_running(1, 65) < 62
    assert "No checkpoint was finished in 60 s" in play.announced("ResizeStarted")[-1].reason


def test_it_waits_no_longer_from_when_that_is_known() -> None:
    play = unseen(2, 1)
    play.tell(ScaleRequested(1))
    assert play.announced("ResizePending")[-1].reason.endswith("at the next finished checkpoint or in 600 s.")
    goes_on_from_what_no_save_was_seen_of(play)
    assert "in 60 s, because no save" in play.announced("ResizePending")[-1].reason
    assert len(play.announced("ResizePending")) == 2
    assert 59 < play.until_running(1, 65) < 62


def test_it_waits_as_long_as_before_if_a_save_was_seen_or_may_still_come() -> None:
    play = unseen(2, 1)
    play.save("worker-0")
    goes_on_from_what_no_save_was_seen_of(play)
    play.tell(ScaleRequested(1))
    assert play.announced("ResizePending")[-1].reason.endswith("in 600 s.")
    play = running(2, 1, grow_patience=600.0)
    play.run(120)
    play.tell(ScaleRequested(1))
    assert play.announced("ResizePending")[-1].reason.endswith("in 600 s.")
    play.run(65)
    assert len(play.world) == 2


def test_a_lost_member_that_may_not_be_replaced_shrinks_the_generation() -> None:
    play = running(4, 2, max_relaunches=0)
    play.lose("worker-3")
    assert play.until_running(3) < 0.1
    play.run(20)
    assert not [a for a in play.actions if isinstance(a, CreatePod)]
    assert not play.announced("ResizePending")


def test_a_lost_member_that_may_not_be_replaced_ends_the_job_if_all_are_needed() -> None:
    play = running(4, max_relaunches=0)
    play.lose("worker-3")
    play.until(lambda: play.ended() is not None, 10.0)
    end = play.ended()
    assert end is not None
    assert end.exit_code == 1
    assert "at least 4 members, but only 3 can take part" in end.reason


def test_a_job_can_be_scaled_down_and_up() -> None:
    play = running(4, 2)
    play.tell(ScaleRequested(2))
    play.run(5)
    assert len(play.world) == 4, "it waits for a checkpoint"
    play.save("worker-0")
    play.until_running(2)
    play.run(3)
    assert sorted(play.deleted()) == ["worker-2", "worker-3"]
    assert sorted({s.member for s in play.sent(Finish)}) == ["worker-2", "worker-3"]
    assert not play.faults()
    play.tell(ScaleRequested(4))
    play.run(5)
    play.save("worker-0")
    play.until_running(4)
    assert play.world == ["worker-0", "worker-1", "worker-4", "worker-5"]


def test_a_job_that_is_made_as_small_as_what_is_left_of_it_keeps_what_is_left() -> None:
    """A node is lost and there is no room for another pod: scaling down by one member keeps the running generation."""
    play = running(4, 2)
    play.creates_pods = False
    play.lose("worker-1")
    play.until_running(3)
    generation = play.generation
    play.tell(ScaleRequested(3))
    play.save("worker-0")
    play.run(10)
    assert play.generation == generation
    assert play.world == ["worker-0", "worker-2", "worker-3"]
    assert not play.deleted()
    play.crash("worker-0")
    play.until_next(3)
    assert play.world == ["worker-0", "worker-3", "worker-2"]


def test_a_pod_without_room_is_deleted_when_a_smaller_job_gives_its_rank_index_to_another() -> None:
    play = running(4, 2)
    play.room = 3
    play.lose("worker-1")
    play.until_running(3)
    play.until(lambda: bool(play.announced("FailedScheduling")))
    play.tell(ScaleRequested(3))
    play.run(5)
    assert play.deleted() == ["worker-4"], "it is not needed, and no spare is requested"
    play.room = None
    play.run(60)
    assert sorted(play.members()) == play.world == ["worker-0", "worker-2", "worker-3"]


@pytest.mark.parametrize("replicas", [0, 1, 5, -1])
def test_a_size_out_of_range_is_refused_with_the_range(replicas: int) -> None:
    play = running(4, 2)
    play.tell(ScaleRequested(replicas))
    (refused,) = play.announced("ScaleRejected")
    assert "2 to 4" in refused.reason
    assert play.wanted() == 4


def test_a_generation_is_a_multiple_of_the_node_unit() -> None:
    play = running(4, 2, node_unit=2, max_relaunches=0)
    play.lose("worker-1")
    play.until_running(2)
    assert play.world == ["worker-0", "worker-2"]


def test_a_requested_restart_is_done_at_once_or_at_the_checkpoint_and_costs_nothing() -> None:
    play = running(2)
    play.tell(RestartRequested())
    play.until(lambda: play.is_running() and play.generation.number == 2)
    play.tell(RestartRequested(at_checkpoint=True))
    play.run(3)
    assert play.generation.number == 2
    play.save("worker-0")
    play.until(lambda: play.is_running() and play.generation.number == 3)
    assert play.restarts_used() == 0
    assert not play.faults()


def test_a_leaving_member_trains_on_until_its_replacement_is_ready() -> None:
    play = running(3)
    play.say(play["worker-1"], Leaving("the node is drained", 30.0))
    play.run(2)
    assert play.generation.number == 1
    play.until(lambda: play.is_running() and play.generation.number == 2, 5.0)
    assert sorted(play.world) == ["worker-0", "worker-2", "worker-3"]
    play.run(2)
    assert play.deleted() == ["worker-1"]
    assert not play.faults()


def test_a_leaving_member_without_a_replacement_leaves_before_its_grace_has_run_out() -> None:
    play = running(3, 2, max_relaunches=0)
    play.say(play["worker-1"], Leaving("the node is drained", 12.0))
    play.run(6.5)
    assert len(play.world) == 3
    assert play.until_running(2, 2.0) < 1.0


def test_a_pod_that_fails_again_and_again_uses_up_its_relaunches() -> None:
    play = running(2, 1, relaunch_limit=2)
    for _ in range(3):
        actor = play[play.holder_of(1)]
        actor.gone = True
        play.tell(PodSeen(actor.id, actor.uid, Role("worker"), actor.rank_index, "failed", "Error", exit_code=1))
        play.run(8)
    assert [a.member for a in play.actions if isinstance(a, CreatePod)] == ["worker-2", "worker-3"]
    assert len(play.world) == 1


def test_a_member_that_joins_late_grows_the_generation() -> None:
    play = Play(job(2, 1, start_patience=10.0))
    play.creates_pods = False
    play.run(0.1)
    play.creates_pods = True
    first = next(a for a in play.actions if isinstance(a, CreatePod))
    late = [a for a in play.actions if isinstance(a, CreatePod)][1]
    play.create(first)
    play.until_running(1, 15)
    play.create(late)
    play.run(5)
    assert len(play.world) == 1
    play.save("worker-0")
    play.until_running(2, 2)


def test_the_status_says_what_a_running_generation_waits_for_and_takes_it_back() -> None:
    def message() -> object:
        return play.status()["message"]

    play = running(3, 2)
    runs = message()
    play.tell(ScaleRequested(2))
    assert message() == "the job will shrink from 3 to 2 members; it waits for a finished checkpoint"
    play.tell(ScaleRequested(3))
    assert message() == runs
    play.tell(RestartRequested(at_checkpoint=True))
    assert message() == "a restart was requested; it waits for a finished checkpoint"


def test_a_restart_that_waits_for_a_checkpoint_is_made_by_any_next_generation() -> None:
    play = running(2)
    play.tell(RestartRequested(at_checkpoint=True))
    play.crash("worker-1")
    play.until_next(2)
    play.save("worker-0")
    play.run(1.0)
    assert not play.announced("ResizeStarted")


def test_a_restart_that_is_refused_stops_nothing() -> None:
    play = running(2)
    before = play.generation
    play.tell(RestartRejected("train.py line 1: SyntaxError: invalid syntax"))
    play.run(5)
    assert play.generation == before
    (event,) = play.announced("RestartRejected")
    assert event.severity == "warning"
    assert (
        event.reason == "The restart is refused, and no rank was stopped: train.py line 1: SyntaxError: invalid syntax."
    )


def test_one_member_alone_rehearses() -> None:
    play = running(3)
    play.tell(Asked("r", REHEARSAL))
    play.run(1)
    assert [sent.member for sent in play.sent(Ask)] == ["worker-0"]
    [given] = [action for action in play.actions if isinstance(action, Deliver)]
    assert [member for member, _body in given.bodies] == ["worker-0"]
    assert given.missing == ()


@pytest.mark.parametrize("answer", [{"parked": 1.0}, {"unchecked": "mpirun"}, {"error": "x"}, [], "x", {"refused": 3}])
def test_what_is_no_refusal(answer: object) -> None:
    assert refusal([answer]) == ""


def test_a_refusal_is_a_members_own_words_and_bounded() -> None:
    assert refusal([{"parked": 1.0}, {"refused": "x" * 5000}]) == "x" * 1000
