"""Rare cases of a generation.

Starts without an answer, members that stop and are not ready again, commands that end without a generation, and the
number of probes of a silent member."""

from __future__ import annotations

import pytest

from outrider.master.core.actions import ProbeMember, SaveStatus
from outrider.master.core.events import MemberProbed
from outrider.master.core.faults.causes import FREE_PORT_CLASHES
from outrider.wire.ids import NO_GENERATION, OrderId
from outrider.wire.messages.generation import Exited, Ready, Start, StartFailed, Stop, WorkerExit
from outrider.wire.messages.links import Probe
from outrider.wire.messages.membership import TrainerExited, TrainerLost
from tests.unit.master.core.play import Actor, Play, job, running

CLASH = "The server socket has failed to listen: EADDRINUSE, Address already in use"


class Deaf(Play):
    """These members never answer a Start."""

    deaf: tuple[str, ...] = ()
    unheard: tuple[str, ...] = ()
    """The master does not hear these members from their Start on."""

    def _start(self, actor: Actor, start: Start) -> None:
        actor.unheard = actor.unheard or actor.id in self.unheard
        if actor.id not in self.deaf:
            super()._start(actor, start)


# -- a Start that is not answered ---------------------------------------------------------------------------------
def test_a_member_that_is_heard_and_does_not_start_within_a_minute_is_a_fault_that_costs_a_restart() -> None:
    play = Deaf(job(2, max_restarts=0))
    play.deaf = ("worker-1",)
    play.until(lambda: bool(play.sent(Start)))
    took = play.until(lambda: bool(play.announced("StartOverdue")), 70)
    assert took == pytest.approx(60.0)
    (overdue,) = play.announced("StartOverdue")
    assert overdue.reason == "worker-1 did not start generation 1.1 within 60 s."
    assert overdue.member == "worker-1"
    play.until(lambda: play.ended() is not None, 5)
    end = play.ended()
    assert end is not None
    assert end.exit_code == 1
    assert "worker-1 did not start generation 1.1 within 60 s; " in end.reason


def test_a_start_that_never_came_to_a_member_costs_no_restart() -> None:
    play = Deaf(job(2, 1, max_restarts=0))
    play.deaf = play.unheard = ("worker-1",)
    play.until(lambda: bool(play.announced("StartOverdue")), 70)
    play.run(10)
    assert play.ended() is None
    assert {s.member for s in play.sent(Stop)} == {"worker-0", "worker-1"}


def test_a_taken_port_that_a_start_fails_for_costs_no_restart() -> None:
    play = running(2, max_restarts=0)
    play.say(play["worker-1"], StartFailed(OrderId(1), play.generation, CLASH))
    (failed,) = play.announced("StartFailed")
    assert failed.reason == f"worker-1 could not start generation 1.1: {CLASH}."
    assert len(play.announced("PortInUse")) == 1
    play.until_next(2)
    assert play.ended() is None


def test_a_start_that_failed_for_an_older_generation_is_no_fault_of_this_one() -> None:
    play = running(2)
    old = play.generation
    play.crash("worker-0")
    play.until_next(2)
    play.say(play["worker-1"], StartFailed(OrderId(1), old, CLASH))
    assert not play.announced("StartFailed")
    play.run(5)
    assert play.generation.number == 2


def test_a_port_that_is_offered_again_before_its_generation_has_started_is_the_one_that_it_uses() -> None:
    play = Play(job(2))
    play.saves_status = False
    play.until(lambda: play.stage == "committing")
    play.say_ready(play["worker-0"], again=True)
    assert not play.sent(Stop)


def test_the_check_of_a_restarted_sidecar_does_not_concern_a_start_under_way() -> None:
    play = Deaf(job(2))
    play.until_running(2)
    play.run(2)
    play.reconnect("worker-1", highest=NO_GENERATION)
    play["worker-1"].running = NO_GENERATION
    play.run(2)
    play.deaf = ("worker-1",)
    play.crash("worker-0")
    play.run(10)
    assert play.generation.number == 2
    assert not play.announced("WorkersGone")


# -- stopped, and not ready again ---------------------------------------------------------------------------------
def test_a_member_that_has_stopped_and_is_not_ready_again_holds_the_others_up_for_15_seconds() -> None:
    play = running(3, 2)
    play["worker-2"].has_trainer = False
    play.crash("worker-0")
    took = play.until_next(2, 30)
    assert 15.0 <= took < 15.5
    (overdue,) = play.announced("ReadyOverdue")
    assert overdue.reason == "worker-2 stopped 15 s ago and is not ready yet; the job continues without it."
    assert overdue.member == "worker-2"
    assert overdue.severity == "warning"
    assert play.world == ["worker-0", "worker-1"]


def test_one_that_was_ready_again_is_not_overdue_in_the_next_stop() -> None:
    play = running(2)
    play.crash("worker-0")
    play.until_next(2)
    play.run(10)
    play["worker-1"].stubborn = True
    play.crash("worker-0")
    play.run(10)
    assert not play.announced("ReadyOverdue")


# -- commands that end without a generation-----------------------------------------------------------------------
def without_a_world(members: int = 2) -> Play:
    """All members are connected, but their commands never become ready."""
    play = Play(job(members))
    play.until(lambda: len(play.actors) == members)
    for actor in play.actors.values():
        actor.has_trainer = False
    play.run(5)
    return play


def exits(play: Play, member: str, code: int) -> None:
    play.say(play[member], TrainerExited(code, "it is no training script"))


@pytest.mark.parametrize("code", [0, 3])
def test_commands_that_all_end_the_same_way_outside_any_generation_end_the_job_with_their_code(code: int) -> None:
    play = without_a_world()
    exits(play, "worker-0", code)
    assert play.ended() is None
    (reported,) = play.announced("TrainerExited")
    assert reported.reason == f"The command of worker-0 ended with code {code} outside any generation."
    assert reported.severity == ("warning" if code else "normal")
    exits(play, "worker-1", code)
    play.until(lambda: play.ended() is not None, 5)
    end = play.ended()
    assert end is not None
    assert end.exit_code == code
    if code:
        assert end.reason.endswith("; the command of every member ended with this code.")


def test_commands_that_end_with_different_codes_do_not_end_the_job() -> None:
    play = without_a_world()
    exits(play, "worker-0", 0)
    exits(play, "worker-1", 3)
    play.run(5)
    assert play.ended() is None


def test_a_command_that_fails_three_times_outside_any_generation_ends_the_job() -> None:
    play = without_a_world()
    for _ in range(2):
        exits(play, "worker-1", 7)
    assert play.ended() is None
    exits(play, "worker-1", 7)
    play.until(lambda: play.ended() is not None, 5)
    end = play.ended()
    assert end is not None
    assert end.exit_code == 7
    assert end.reason.endswith("; this happened 3 times.")


# -- failures at import -------------------------------------------------------------------------------------------
def fails_at_import(play: Play, *members: str) -> None:
    for member in members:
        play.crash(
            member, code=1, signal=None, error="RuntimeError", message="no data set here", step=0, at_import=True
        )


def test_an_import_that_fails_everywhere_is_tried_once_more_ten_seconds_later_and_then_ends_the_job() -> None:
    play = Play(job(2))
    play.until_running()
    fails_at_import(play, "worker-0", "worker-1")
    assert 10.0 <= play.until_next(2, 20) < 10.5
    reasons = {stop.reason for stop in play.sent(Stop)}
    assert all(
        reason.endswith("Every rank fails in this way; all are restarted once more in 10 s.") for reason in reasons
    )
    fails_at_import(play, "worker-0", "worker-1")
    play.until(lambda: play.ended() is not None, 5)
    end = play.ended()
    assert end is not None
    assert end.exit_code == 1
    assert end.reason.endswith("no data set here; every rank fails at import the same way.")


@pytest.mark.parametrize("members", [1, 2])
def test_an_import_that_fails_everywhere_ends_a_job_without_restarts(members: int) -> None:
    play = Play(job(members, max_restarts=0))
    play.until_running()
    fails_at_import(play, *play.world)
    play.until(lambda: play.ended() is not None, 5)
    end = play.ended()
    assert end is not None
    assert end.reason.endswith("no data set here; every rank fails at import, and no restart is left.")


def test_a_failure_at_import_waits_a_second_for_the_others_to_fail_alike() -> None:
    play = Play(job(2))
    play.until_running()
    fails_at_import(play, "worker-1")
    assert play.until(lambda: bool(play.sent(Stop))) == pytest.approx(1.0)
    assert "It failed before its first step; the master waits to see if all ranks do." not in play.sent(Stop)[0].reason


@pytest.mark.parametrize(("earlier", "waits"), [(0, True), (1, True), (2, False)])
def test_it_does_so_in_the_first_two_generations_alone(earlier: int, waits: bool) -> None:
    play = Play(job(2))
    play.until_running()
    for _ in range(earlier):
        play.crash("worker-0", step=0)
        play.until_next(2)
    play.actions.clear()
    fails_at_import(play, "worker-1")
    assert bool(play.sent(Stop)) != waits


# -- ranks that ended with 0 --------------------------------------------------------------------------------------
def test_of_several_ranks_that_ended_with_0_the_lowest_is_named_and_the_others_are_counted() -> None:
    play = running(4)
    play.done("worker-1")
    play.done("worker-0")
    play.crash("worker-3", code=1, error="torch.distributed.DistBackendError", message="Connection closed by peer")
    (fault,) = play.announced("WorkerExited")
    assert fault.reason.endswith(", after worker-0 and 1 other had ended with code 0.")


def test_a_member_whose_ranks_have_all_ended_with_0_is_reported_once() -> None:
    play = running(2)
    play.done("worker-0")
    play.done("worker-0")
    (reported,) = play.announced("MemberSucceeded")
    assert reported.reason == "All worker processes of worker-0 have ended with code 0."
    assert reported.member == "worker-0"


def test_a_member_is_not_done_before_its_last_rank_has_ended() -> None:
    play = running(2, nproc=2)
    for alive in (1, 0):
        assert not play.announced("MemberSucceeded")
        play.say(play["worker-0"], Exited(play.generation, (WorkerExit(alive, 5, 0),), alive))
    assert play.announced("MemberSucceeded")


def test_ranks_that_end_with_0_while_their_generation_stops_are_started_again() -> None:
    play = running(2)
    play.crash("worker-1")
    play.done("worker-0")
    assert not play.announced("MemberSucceeded")
    play.until_next(2)


# -- what a member receives ---------------------------------------------------------------------------------------
def test_a_start_has_all_that_the_ranks_need() -> None:
    play = running(2, nproc=2, max_restarts=7)
    for number in range(20):
        play.save("worker-0", f"/data/{number}.pt")
    play.crash("worker-0")
    play.until_next(2)
    start = play.sent(Start, "worker-1")[-1].message
    assert isinstance(start, Start)
    assert start.job == play.spec.name
    assert (start.restart_count, start.max_restarts) == (1, 7)
    assert (start.group_rank, start.group_world_size, start.rank_index) == (1, 2, 1)
    assert (start.first_rank, start.nproc, start.world_size) == (2, 2, 4)
    assert (start.role_first_rank, start.role_world_size) == (2, 4)
    assert start.high_step == 20
    assert [path for path, _step in start.saves] == [f"/data/{number}.pt" for number in range(4, 20)]


def test_the_line_of_the_rendezvous_has_every_field() -> None:
    play = Play(job(2, nproc=2))
    play.until_running(2)
    reported = {a.member: dict(a.detail) for a in play.announced("GenerationStarted")}
    assert reported["worker-1"] == {
        "restart_count": "0",
        "master_addr": "127.0.0.1",
        "master_port": "30001",
        "group_rank": "1",
        "group_world_size": "2",
        "local_ranks": "[0, 1]",
        "global_ranks": "[2, 3]",
        "world_size": "4",
    }
    decided = [a.reason for a in play.actions if isinstance(a, SaveStatus) and "is decided" in a.reason]
    assert decided == ["Generation 1.1 is decided: 2 members, 4 ranks; it is saved before it starts."]


@pytest.mark.parametrize(
    ("nproc", "processes", "ranks"),
    [(1, "1 worker process", "rank 0 of 1"), (2, "2 worker processes", "ranks 0 to 1 of 2")],
)
def test_a_ready_member_is_reported_once_with_its_mode(nproc: int, processes: str, ranks: str) -> None:
    play = running(2, nproc=nproc)
    play.crash("worker-0")
    play.until_next(2)
    assert not play.announced("MemberReady")
    first = Play(job(1, nproc=nproc))
    first.until_running(1)
    (reported,) = first.announced("MemberReady")
    assert reported.reason == f"worker-0 is ready for {processes} in mode fork: the template is parked."
    (started,) = first.announced("GenerationStarted")
    assert started.reason == f"Generation 1.1 starts on worker-0 with {ranks}, rendezvous at 127.0.0.1:30001."


def test_a_running_generation_is_reported_with_the_highest_step_before_it() -> None:
    play = Play(job(2))
    play.until_running(2)
    assert [a.reason for a in play.announced("GenerationRunning")] == ["Generation 1.1 runs with 2 members, 2 ranks."]
    play.run(2.0)
    play.crash("worker-0")
    play.until_next(2)
    assert play.announced("GenerationRunning")[1].reason == (
        "Generation 1.2 runs with 2 members, 2 ranks; the highest step so far is 20."
    )


# -- probes of a silent member ------------------------------------------------------------------------------------
@pytest.mark.parametrize(("members", "asked"), [(3, 2), (4, 3), (7, 4), (17, 8)])
def test_more_than_half_of_a_small_jobs_members_probe_and_eight_of_a_large_ones(members: int, asked: int) -> None:
    play = running(members, members - 1)
    play.freeze("worker-1")
    play.until(lambda: bool(play.sent(Probe)), 5)
    assert len({s.member for s in play.sent(Probe)}) == asked
    assert all(s.reason.startswith("worker-1 has been silent for 1.8 s. ") for s in play.sent(Probe))


class Answered(Play):
    """The master's direct probes reach the members."""

    def _probe_directly(self, action: ProbeMember) -> None:
        self.tell(MemberProbed(action.member, True))


def test_a_member_without_peers_that_answers_the_master_is_kept_and_probed_again() -> None:
    play = Answered(job(1))
    play.until_running(1)
    play.run(2)
    play.creates_pods = False
    play.freeze("worker-0")
    play.run(20)
    (reported,) = play.announced("MasterCannotReachMember")
    assert reported.reason.endswith(", but answers the master's probe: it is not replaced.")
    assert (reported.member, reported.severity) == ("worker-0", "warning")
    assert not play.announced("MemberSilent")
    assert not play.deleted()
    attempts = len([a for a in play.actions if isinstance(a, ProbeMember)])
    assert 3 < attempts <= 20 / play.spec.silent_after + 1


def test_a_master_that_may_be_cut_off_says_so_once_with_how_many_are_silent() -> None:
    play = running(4)
    play.creates_pods = False
    for member in ("worker-0", "worker-1", "worker-2", "worker-3"):
        play[member].unheard = True
    play.run(15)
    reported = play.announced("MasterNetworkSuspected")
    assert reported
    assert reported[0].reason.startswith("4 of ")
    assert " members are silent at the same time, worker-0 for 3.0 s: " in reported[0].reason
    assert reported[0].reason.endswith("the master itself may be cut off from the network, so no member is excluded.")
    assert len({a.member for a in reported}) == len(reported), "each member once"


def test_replacements_that_have_not_come_do_not_count_as_silent() -> None:
    play = running(4)
    play.creates_pods = False
    play.lose("worker-3")
    play.run(5)
    assert len(play.members()) == 4, "one of them is a replacement that does not come"
    for member in ("worker-0", "worker-1", "worker-2"):
        play[member].unheard = True
    play.run(15)
    assert play.announced("MasterNetworkSuspected")[0].reason.startswith("3 of 3 members are silent at the same time")


def test_a_port_that_is_taken_again_and_again_costs_restarts_in_the_end() -> None:
    play = running(2, max_restarts=1)
    for _ in range(FREE_PORT_CLASHES + 1):
        play.say(play["worker-1"], StartFailed(OrderId(1), play.generation, CLASH))
        play.until_next(2)
    assert len(play.announced("PortInUse")) == FREE_PORT_CLASHES
    assert play.restarts_used() == 1


def test_the_ends_that_went_with_a_template_say_how_far_it_had_come() -> None:
    play = running(2)
    actor = play["worker-1"]
    ends = (WorkerExit(0, 5, None, 9, step=1000),)
    play.say(actor, TrainerLost("the template was killed by SIGKILL", actor.running, ends))
    assert play.highest_step == 1000


def test_an_inner_launchers_number_of_restarts_counts_if_the_user_gave_none() -> None:
    for is_asked, most in ((False, 7), (True, 3)):
        play = Play(job(2, max_restarts=3, max_restarts_asked=is_asked))
        play.until(lambda play=play: "worker-1" in play.actors and bool(play["worker-1"].session), 10)
        play.say(play["worker-1"], Ready(31000, 1, "T1", "an inner launcher", 77, max_restarts=7))
        play.until_running()
        assert {send.message.max_restarts for send in play.sent(Start)} == {most}  # type: ignore[union-attr]
