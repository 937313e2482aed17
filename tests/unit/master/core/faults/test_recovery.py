"""Faults of worker processes: what stops, what restarts, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outrider.wire.messages.generation import Start, Stepped, Stop, WorkerExit
from outrider.wire.messages.membership import TrainerLost
from tests.unit.master.core.play import Play, job, running


def test_a_crash_stops_every_member_in_the_same_step() -> None:
    play = running(4)
    actions = play.crash("worker-2")
    stops = [a for a in actions if hasattr(a, "message") and isinstance(a.message, Stop)]
    assert sorted(a.member for a in stops) == [f"worker-{i}" for i in range(4)]


def test_between_a_crash_and_the_restart_there_is_no_timer() -> None:
    play = running(4)
    play.crash("worker-2")
    assert play.until(lambda: play.is_running() and play.generation.number == 2) < 0.1


def test_each_generation_uses_a_fresh_port_of_its_first_member() -> None:
    play = running(3)
    for number in (2, 3, 4):
        play.crash("worker-1")
        play.until(lambda number=number: play.is_running() and play.generation.number == number)
        play.run(2)
    ports = {(s.message.generation.number, s.message.master_port) for s in play.sent(Start)}
    assert len({port for _n, port in ports}) == len(ports) == 3
    first = play["worker-0"]
    assert first.start is not None
    assert first.start.master_port == first.port


def test_start_is_sent_only_after_the_status_is_saved() -> None:
    play = Play(job(2))
    play.saves_status = False
    play.run(10)
    assert play.stage == "committing"
    assert not play.sent(Start)


def test_a_kill_of_a_whole_tree_shows_as_exits_first_and_is_one_fault_that_costs_no_restart() -> None:
    play = running(4, max_restarts=0)
    play.crash("worker-1")
    play.run(0.05)
    play.lose("worker-1")
    play.until(lambda: play.is_running() and play.generation.number == 2)
    assert [(f.kind, f.member) for f in play.faults()] == [("MemberLost", "worker-1")]
    assert [a.reason for a in play.announced("MemberLost")] == [
        "worker-1 is lost: killed. This explains the earlier failures of ranks; it costs no restart."
    ]
    assert play.restarts_used() == 0
    assert play.phase == "running"


def test_a_template_that_dies_explains_the_failures_of_its_ranks_and_costs_their_restart() -> None:
    play = running(2)
    play.crash("worker-1")
    play.lose_trainer("worker-1")
    play.until_next(2)
    assert [f.kind for f in play.faults()] == ["TrainerLost"]
    assert [a.reason for a in play.announced("TrainerLost")] == [
        "worker-1: the template was killed by SIGKILL. This explains the earlier failures of ranks."
    ]
    assert play.restarts_used() == 1


def test_the_last_step_of_ranks_that_die_with_their_template_is_known() -> None:
    play = running(2)
    end = WorkerExit(0, 5, None, 9, step=50)
    play.say(play["worker-1"], TrainerLost("the template was killed by SIGKILL", play.generation, (end,)))
    assert play.highest_step == 50


def test_a_member_that_crashed_recovered_and_is_lost_seconds_later_had_two_faults() -> None:
    play = running(4)
    play.crash("worker-3")
    play.until(lambda: play.is_running() and play.generation.number == 2)
    play.run(4)
    play.lose("worker-3")
    play.until(lambda: all(f.seconds_lost is not None for f in play.faults()))
    assert [(f.kind, f.member) for f in play.faults()] == [("WorkerExited", "worker-3"), ("MemberLost", "worker-3")]
    assert play.generation.number == 3
    assert play.restarts_used() == 1


def test_broken_connections_are_effects_of_the_member_that_is_lost_a_moment_later() -> None:
    play = running(4, max_restarts=1)
    gloo = "[../third_party/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:51234"
    play.crash("worker-0", code=1, error="RuntimeError", message=gloo)
    play.lose("worker-3", "its machine is gone")
    play.until(lambda: play.is_running() and play.generation.number == 2)
    assert [(f.kind, f.member) for f in play.faults()] == [("MemberLost", "worker-3")]
    assert play.restarts_used() == 0
    assert play.world == ["worker-0", "worker-1", "worker-2", "worker-4"]


def test_a_connection_that_was_closed_by_a_rank_that_had_ended_well_is_described_so() -> None:
    """The script ends on rank 0 and continues elsewhere: there was no crash."""
    play = running(4)
    play.done("worker-0")
    play.crash("worker-2", code=1, error="torch.distributed.DistBackendError", message="Connection closed by peer")
    (fault,) = play.faults()
    assert fault.reason.endswith("Connection closed by peer, after worker-0 had ended with code 0.")


def test_the_first_rank_to_fail_is_the_cause_even_if_an_effect_is_reported_first() -> None:
    play = running(4)
    play.crash("worker-0", code=1, error="torch.distributed.DistBackendError", message="Connection closed by peer")
    play.crash("worker-3", code=1, error="ValueError", message="bad sample 17")
    play.until(lambda: play.is_running() and play.generation.number == 2)
    (fault,) = play.faults()
    assert (fault.kind, fault.member) == ("WorkerExited", "worker-3")
    assert "bad sample 17" in fault.reason
    assert play.restarts_used() == 1


CLOSED = {"code": 1, "error": "torch.distributed.DistBackendError", "message": "Connection closed by peer"}


@pytest.mark.parametrize(
    ("how", "ended", "what"),
    [({}, "was killed by SIGKILL", ", at the same moment"),
     (CLOSED, "failed with DistBackendError: Connection closed by peer", ", as an effect of the first failure")],
)  # fmt: skip
def test_each_further_failure_is_related_to_the_first(how: dict[str, Any], ended: str, what: str) -> None:
    play = running(4)
    play.crash("worker-1")
    play.crash("worker-2", **how)
    _first, event = play.announced("WorkerExited")
    assert (event.reason, event.member, event.severity) == (f"Rank 2 on worker-2 {ended}{what}.", "worker-2", "warning")


def test_two_crashes_at_once_are_one_generation_and_one_restart() -> None:
    play = running(4)
    play.crash("worker-1")
    play.crash("worker-2")
    play.until(lambda: play.is_running() and play.generation.number == 2)
    play.run(5)
    assert play.generation.number == 2
    assert play.restarts_used() == 1


def test_a_second_fault_during_recovery_is_survived() -> None:
    play = running(4)
    play.crash("worker-1")
    play.until(lambda: play["worker-2"].running.number == 2)
    play.crash("worker-2")
    play.until(lambda: play.is_running() and play.generation.number >= 3)
    play.run(10)
    assert play.phase == "running"
    assert all(f.seconds_lost is not None for f in play.faults())


def test_the_lost_seconds_run_from_the_last_old_step_to_the_first_new_one() -> None:
    play = running(4)
    play.save("worker-0")
    play.run(1.0)
    crashed_at = play.now
    play.crash("worker-2")
    play.until(lambda: bool(play.announced("Recovered")))
    (fault,) = play.faults()
    assert fault.seconds_lost is not None
    assert abs(fault.seconds_lost - (play.now - crashed_at)) < 0.15
    assert play.announced("Recovered")[0].reason.startswith("Training is past step 30, where it was before WorkerEx")
    assert play.now - crashed_at > 1.0, "the steps since the checkpoint are repeated and count as lost"


def test_recovery_from_a_fault_before_the_first_step_is_described_so() -> None:
    play = running(3, steps=False)
    play.lose("worker-1")
    play.until_next(3)
    play.say(play["worker-0"], Stepped(play.generation, 1, 0.0))
    (told,) = play.announced("Recovered")
    assert told.reason.startswith("Training starts at step 1, ")
    assert told.reason.endswith(" s after MemberLost; no step was made before it.")
    (fault,) = play.faults()
    assert fault.seconds_lost is not None, "the fault is over"


def test_the_budget_of_restarts_ends_the_job_with_the_code_of_the_first_rank_to_fail() -> None:
    play = running(2, max_restarts=2)
    for _ in range(3):
        play.crash("worker-1", signal=11)
        play.run(5)
    end = play.ended()
    assert end is not None
    assert end.exit_code == 139
    assert "all 2 restarts of the budget are used" in end.reason


def test_a_restart_is_regained_after_half_an_hour_without_a_fault() -> None:
    play = running(2, max_restarts=1)
    play.crash("worker-1")
    play.run(1801)
    play.crash("worker-1")
    play.run(5)
    assert play.ended() is None
    assert play.phase == "running"


def test_no_restart_allowed_means_none() -> None:
    play = running(2, max_restarts=0, max_restarts_asked=True)
    play.crash("worker-1", code=3, signal=None)
    play.run(10)
    end = play.ended()
    assert end is not None
    assert end.exit_code == 3


def test_the_same_error_in_three_generations_without_a_step_is_a_crash_loop() -> None:
    play = Play(job(2))
    play.until_running()
    for number in range(3):
        play.crash(
            "worker-1", code=1, signal=None, error="KeyError", message=f"'layer{number}' at 0x7f{number}", step=0
        )
        play.run(0.08)
    end = play.ended()
    assert end is not None
    assert end.exit_code == 1
    assert "3 generations in a row" in end.reason
    (failed,) = play.announced("JobFailed")
    assert dict(failed.detail)["traceback"] == "Traceback …"


def test_different_errors_are_not_a_crash_loop() -> None:
    play = Play(job(2))
    play.until_running()
    for name in ("KeyError", "ValueError", "KeyError", "TypeError"):
        play.crash("worker-1", code=1, signal=None, error=name, message="x", step=0)
        play.run(0.08)
    assert play.ended() is None


def test_kills_from_outside_are_not_a_crash_loop() -> None:
    play = Play(job(2))
    play.until_running()
    for _ in range(4):
        play.crash("worker-1", step=0)
        play.run(0.5)
    assert play.ended() is None


def test_all_ranks_failing_at_import_the_same_way_ends_the_job_at_once() -> None:
    play = Play(job(3))
    play.until_running()
    begun = play.now
    for member in ("worker-0", "worker-1", "worker-2"):
        play.crash(member, code=1, signal=None, error="ModuleNotFoundError", message="No module named 'nope'", step=0,
                   at_import=True)  # fmt: skip
    play.until(lambda: play.ended() is not None, 1.0)
    end = play.ended()
    assert end is not None
    assert end.exit_code == 1
    assert play.generation.number == 1
    assert play.now - begun < 1.0


def test_one_rank_failing_at_import_is_a_fault_of_that_member_alone() -> None:
    play = Play(job(3))
    play.until_running()
    play.crash("worker-1", code=1, signal=None, error="OSError", message="disk", step=0, at_import=True)
    play.until(lambda: play.is_running() and play.generation.number == 2, 3.0)
    assert play.faults()[0].member == "worker-1"


def test_a_taken_port_costs_one_more_generation_and_no_restart() -> None:
    play = running(2, max_restarts=0)
    play.crash("worker-0", code=1, signal=None, error="torch.distributed.DistNetworkError",
               message="The server socket has failed to listen: EADDRINUSE, Address already in use")  # fmt: skip
    play.until(lambda: play.is_running() and play.generation.number == 2)
    assert play.restarts_used() == 0


def test_a_dead_template_does_not_delay_the_others_if_they_are_enough() -> None:
    play = running(4, 2)
    play.lose_trainer("worker-1")
    assert play.until(lambda: play.is_running(3)) < 0.2
    play.run(5)
    play.save("worker-0")
    play.until_running(4)


def test_a_dead_template_is_waited_for_if_every_member_is_needed() -> None:
    play = running(2)
    play.lose_trainer("worker-1")
    play.until(lambda: play.is_running() and play.generation.number == 2)
    assert play.restarts_used() == 1


def test_a_member_that_never_stops_is_left_out_when_all_grace_periods_are_over() -> None:
    play = running(3, 2)
    play["worker-2"].stubborn = True
    play.crash("worker-0")
    assert play.until(lambda: play.is_running(2), 200) < 90
    assert play.announced("StopOverdue")


def test_a_member_that_never_stops_loses_its_pod_and_is_replaced() -> None:
    play = running(1)
    play["worker-0"].stubborn = True
    play.crash("worker-0")
    assert play.until(lambda: play.is_running(1) and "worker-1" in play.world, 200) < 120
    assert "cannot end the processes of generation 1.1" in play.announced("SilentMemberDeleted")[0].reason


def test_a_member_that_never_stops_and_has_no_controller_is_reported() -> None:
    play = running(2, 1)
    play["worker-0"].stubborn = True
    play.tell(replace(play.pod(play["worker-0"]), has_controller=False))
    play.crash("worker-0")
    play.run(200)
    (event,) = play.announced("PodNotDeleted")
    assert event.reason.startswith("worker-0 cannot end the processes of generation 1.1; its pod is not deleted")
    assert not play.deleted()


def test_ranks_that_all_end_well_end_the_job_with_0() -> None:
    play = running(3)
    for member in ("worker-0", "worker-1", "worker-2"):
        play.done(member)
    play.until(lambda: play.ended() is not None, 2.0)
    end = play.ended()
    assert end is not None
    assert end.exit_code == 0
    assert play.phase == "succeeded"


def test_a_member_that_is_done_and_then_lost_is_not_a_fault() -> None:
    play = running(2)
    play.done("worker-0")
    play.lose("worker-0")
    play.done("worker-1")
    play.until(lambda: play.ended() is not None, 10)
    assert not play.faults()
    (event,) = play.announced("MemberLost")
    assert (event.reason, event.member, event.severity) == ("worker-0 is lost: killed.", "worker-0", "normal")
