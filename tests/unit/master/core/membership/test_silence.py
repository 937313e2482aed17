"""Silent members: which are probed, excluded or kept, and how they return."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.master.core.actions import CreatePod
from outrider.master.core.events import MemberProbed, SpecChanged, Stalled, StopAsked
from outrider.wire.ids import MemberId
from outrider.wire.messages.generation import Start, Stop
from outrider.wire.messages.links import Probe
from outrider.wire.messages.report import Report
from tests.unit.master.core.play import Play, job, running

SILENT_AFTER = 3.0


def created(play: Play) -> list[CreatePod]:
    return [a for a in play.actions if isinstance(a, CreatePod)]


def test_a_frozen_member_is_excluded_after_peers_could_not_reach_it() -> None:
    play = running(4, 3)
    play.freeze("worker-2")
    took = play.until_running(3)
    assert took < SILENT_AFTER + 0.2
    (verdict,) = play.announced("MemberSilent")[:1]
    assert verdict.member == "worker-2"
    assert "worker-0, worker-1, worker-3 cannot reach it either" in verdict.reason
    assert {s.message.member for s in play.sent(Probe)} == {MemberId("worker-2")}  # type: ignore[union-attr]


def test_with_a_spare_the_generation_is_complete_again_at_the_verdict() -> None:
    play = running(4, spares=1)
    play.run(3)
    play.freeze("worker-1")
    assert play.until_next(4, 10) < SILENT_AFTER + 1.2
    assert play.world == ["worker-0", "worker-4", "worker-2", "worker-3"]
    assert play.places()["worker-4"].rank_index == 1


def test_a_replacement_is_created_at_the_first_suspicion() -> None:
    play = running(4)
    play.freeze("worker-1")
    play.until(lambda: bool(created(play)), 2.0)
    assert created(play)[0].rank_index is None
    assert play.until_next(4, 10) < 4.5


def test_a_replacement_that_is_not_needed_stays_as_a_spare() -> None:
    play = running(4)
    play.freeze("worker-1")
    play.until(lambda: bool(created(play)), 2.0)
    play.thaw("worker-1")
    play.run(10)
    assert play.generation.number == 1
    assert play.state_of("worker-4") == "spare"


def test_a_member_that_its_peers_reach_is_not_replaced() -> None:
    play = running(4)
    play["worker-2"].unheard = True
    play.run(15)
    assert play.generation.number == 1
    assert not play.deleted()
    (unheard,) = play.announced("MasterCannotReachMember")
    assert "it is not replaced" in unheard.reason
    play["worker-2"].unheard = False
    play.run(5)
    assert play.generation.number == 1
    assert not play.faults()


def test_if_most_members_are_silent_at_once_the_master_suspects_itself() -> None:
    play = running(4)
    for member in ("worker-0", "worker-1", "worker-2", "worker-3"):
        play[member].unheard = True
    play.run(30)
    assert not play.deleted()
    assert not play.faults()
    assert play.announced("MasterNetworkSuspected")
    for member in ("worker-0", "worker-1", "worker-2", "worker-3"):
        play[member].unheard = False
    play.run(10)
    assert play.generation.number == 1


def test_two_of_four_frozen_at_once_are_both_excluded() -> None:
    play = running(4, 2)
    play.freeze("worker-1")
    play.freeze("worker-2")
    assert play.until_running(2, 10) < SILENT_AFTER + 1.5


def test_a_single_member_is_probed_by_the_master() -> None:
    play = running(1)
    play.freeze("worker-0")
    play.until(lambda: bool(play.announced("MemberSilent")), 5.0)
    assert "the master cannot reach it either" in play.announced("MemberSilent")[0].reason


def test_a_pause_of_the_master_does_not_count_as_silence_of_members() -> None:
    play = running(4)
    play.now += 20.0
    play.tell(Stalled(20.0))
    play.run(1.0)
    assert not play.faults()
    assert play.generation.number == 1


def test_a_suspected_member_has_its_whole_time_again_after_a_pause_of_the_master() -> None:
    play = running(4, 3)
    play.freeze("worker-1")
    play.until(lambda: bool(play.sent(Probe)))
    play.now += 5.0
    play.tell(Stalled(5.0))
    took = play.until(lambda: bool(play.announced("MemberSilent")))
    assert took == pytest.approx(SILENT_AFTER)


def test_a_silent_member_has_time_to_reconnect_after_a_pause_of_the_master() -> None:
    play = running(4)
    play.freeze("worker-1")
    play.run(19)
    play.tell(Stalled(0.5))
    play.run(5.5)
    assert not play.deleted()
    play.run(1.0)
    assert play.deleted() == ["worker-1"]


def test_a_suspected_member_has_the_silent_after_that_was_edited_meanwhile() -> None:
    play = running(4, 3)
    play.freeze("worker-1")
    play.until(lambda: bool(play.sent(Probe)))
    play.tell(SpecChanged(replace(play.spec, silent_after=10.0)))
    play.until(lambda: bool(play.announced("MemberSilent")))
    assert "it has been silent for 10 s, and " in play.announced("MemberSilent")[0].reason


def test_at_the_end_of_the_job_a_member_is_waited_for_until_it_is_silent() -> None:
    play = running(2, silent_after=2.0)
    play.report(play["worker-1"])
    play.freeze("worker-1")
    play.run(1.1)
    play.tell(StopAsked("by `outrider stop`"))
    assert play.until(lambda: bool(play.announced("MasterCannotReachMember"))) == pytest.approx(0.9)


@pytest.mark.parametrize("member", ["worker-0", "worker-9"])
def test_a_direct_probe_of_a_member_that_is_no_longer_suspected_changes_nothing(member: str) -> None:
    assert running(2).tell(MemberProbed(MemberId(member), False)) == []


def test_a_pause_too_short_for_any_suspicion_is_not_reported() -> None:
    play = running(2, silent_after=10.0)
    for lost, reported in ((0.3, 0), (5.9, 0), (6.1, 1)):
        play.tell(Stalled(lost))
        assert len(play.announced("MasterStalled")) == reported


def test_a_thawed_member_does_not_disturb_the_new_generation_and_stays_as_a_spare() -> None:
    play = running(4)
    play.freeze("worker-1")
    play.until_next(4, 10)
    generation = play.generation
    play.thaw("worker-1")
    play.run(5)
    assert play.generation == generation
    assert play.state_of("worker-1") == "spare", "its old workers were stopped, and it is ready"
    assert play.announced("MemberReturned")


def test_a_member_that_thaws_before_its_replacement_comes_keeps_its_rank_index() -> None:
    play = running(4, 3, max_relaunches=0)
    play.freeze("worker-1")
    play.until_running(3, 10)
    play.thaw("worker-1")
    play.run(2)
    play.save("worker-0")
    play.until_running(4, 5)
    assert play.places()["worker-1"].rank_index == 1


def test_the_old_workers_of_a_thawed_member_get_a_stop_and_never_a_start_before_it() -> None:
    play = running(4)
    play.freeze("worker-1")
    play.until_next(4, 10)
    play.actions.clear()
    play["worker-1"].inbox.clear()
    play.thaw("worker-1")
    play.run(5)
    messages = [s.message for s in play.sent(Stop, "worker-1")]
    assert messages
    assert not play.sent(Start, "worker-1")


def test_the_pod_of_a_member_that_stays_silent_is_deleted() -> None:
    play = running(4)
    play.freeze("worker-1")
    play.run(19)
    assert not play.deleted()
    play.run(3)
    assert play.deleted() == ["worker-1"]
    assert [f.kind for f in play.faults()] == ["MemberSilent"]
    assert "worker-1" not in play.members()


def test_reports_do_not_grow_with_the_number_of_members() -> None:
    """The heap of deadlines stays as large as the job, however many reports come."""
    play = running(4)
    size = play.timers()
    for _ in range(1000):
        play.say(play["worker-0"], Report(play.generation, "running", 1))
    assert play.timers() <= size
    assert play.actions == [] or all(type(a).__name__ != "Send" for a in play.actions)


def test_after_a_pause_of_the_master_no_pod_is_created_for_an_older_suspicion() -> None:
    play = running(4)
    play["worker-3"].unheard = True
    play.run(8)
    assert "worker-4" in play.actors
    play.now += 30
    play.lose("worker-1")
    play["worker-3"].unheard = False
    play.report(play["worker-3"])
    play.tell(Stalled(30))
    play.run(5)
    assert play.member("worker-4")["rank_index"] == 1
    assert "worker-5" not in play.actors


def test_no_member_is_created_for_a_job_that_fails_when_it_stops_waiting_for_its_silent_member() -> None:
    play = Play(job(2, max_restarts=0, spares=1))
    play.until_running(2)
    play.run(5.0)
    before = len(play.actions)
    play.freeze("worker-1")
    play.crash("worker-0")
    play.until(lambda: play.is_over)
    assert not [action for action in play.actions[before:] if isinstance(action, CreatePod)]
