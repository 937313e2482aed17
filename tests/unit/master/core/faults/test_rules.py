"""The user's rules about exit codes take precedence over the master's own remedies."""

from __future__ import annotations

import pytest

from outrider.master.core.actions import CreatePod
from outrider.master.core.faults import failure_policy
from outrider.master.core.spec import Rule
from outrider.master.core.state.job import State
from outrider.master.core.state.member import Member
from outrider.wire.ids import Generation, MemberId, RankIndex, Role
from outrider.wire.messages.generation import Exited, WorkerExit
from outrider.wire.messages.membership import Finish
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Play, job, running


def rule(action: str, *codes: int) -> Rule:
    return Rule(codes, action)


def test_a_permanent_code_ends_the_job_at_once() -> None:
    play = running(3, permanent_codes=(3,))
    play.crash("worker-1", code=3)
    play.until(lambda: play.ended() is not None, 10)
    assert play.message == "Rank 1 on worker-1 exited with code 3; exit code 3 is permanent (recovery.exitCodes)."
    assert play.exit_code == 3


def test_a_rule_may_end_the_job_with_the_scripts_own_traceback() -> None:
    play = running(3, rules=(rule("fail", 1),))
    play.crash("worker-1", code=1, error="ValueError", message="bad label 17")
    play.until(lambda: play.ended() is not None, 10)
    (failed,) = play.announced("JobFailed")
    assert "rule 1 of recovery.rules requires fail for exit code 1" in failed.reason
    assert ("traceback", "Traceback …") in failed.detail


def test_an_error_that_another_rank_caused_matches_no_rule() -> None:
    play = running(3, rules=(rule("fail", 1),))
    play.crash("worker-0", code=1, error="RuntimeError", message="Connection closed by peer")
    play.crash("worker-1", signal=9)
    play.until_next(3)
    assert play.ended() is None


def test_a_lost_member_explains_what_a_rule_would_fail_the_job_for() -> None:
    play = running(3, 2, permanent_codes=(137,))
    play.crash("worker-1", signal=9)
    play.run(0.5)
    play.lose("worker-1")
    play.until_running(2)
    play.run(5)
    assert play.ended() is None
    play.crash("worker-0", signal=9)
    play.until(lambda: play.ended() is not None, 10)


def test_a_member_is_replaced_if_a_rule_requires_it_and_its_pod_stays() -> None:
    play = running(3, rules=(rule("replace", 13),))
    play.crash("worker-1", code=13)
    play.until_next(3)
    (finish,) = play.sent(Finish)
    assert (finish.member, finish.message.exit_code) == ("worker-1", 13)  # type: ignore[union-attr]
    assert sorted(play.world) == ["worker-0", "worker-2", "worker-3"]
    assert not play.deleted()
    assert [f.reason for f in play.faults()] == [
        "Rank 1 on worker-1 exited with code 13: rule 1 of recovery.rules requires replace for exit code 13."
    ]


def test_a_rule_may_exclude_the_node() -> None:
    play = Play(job(2, rules=(rule("replaceNode", 13),)))
    play.nodes = {"worker-0": "a", "worker-1": "b", "worker-2": "a"}
    play.until_running(2)
    play.run(2)
    play.crash("worker-1", code=13)
    play.until_next(2)
    made = [a for a in play.actions if isinstance(a, CreatePod)]
    assert (made[-1].member, made[-1].avoid) == ("worker-2", ("b",))
    assert "requires replaceNode" in play.announced("NodeExcluded")[0].reason


def test_more_than_half_of_the_nodes_are_never_excluded() -> None:
    play = Play(job(2, rules=(rule("replaceNode", 13),)))
    play.nodes = {f"worker-{n}": "only" for n in range(4)}
    play.until_running(2)
    play.run(2)
    play.crash("worker-1", code=13)
    play.until_next(2)
    assert [a for a in play.actions if isinstance(a, CreatePod)][-1].avoid == ()


def test_a_rule_takes_precedence_over_the_masters_own_remedy() -> None:
    play = Play(job(2, rules=(rule("restart", 137),)))
    play.memory_limit = 700 * 2**20
    play.until_running(2)
    play.run(2)
    play.crash("worker-1", signal=9, out_of_memory=True)
    play.until_next(2)
    assert not play.sent(Finish)
    assert play.status()["memory"] == {}


def test_an_exit_that_a_rule_restarts_names_the_rule() -> None:
    play = running(2, rules=(rule("restart", 14),))
    play.crash("worker-1", code=14)
    (event,) = play.announced("WorkerExited")
    assert event.reason == (
        "Rank 1 on worker-1 exited with code 14: rule 1 of recovery.rules requires restart for exit code 14."
    )


@pytest.mark.parametrize("policy", [{"retryable_codes": (3,)}, {"rules": (rule("restart", 3),)}])
def test_retryable_exits_are_never_a_crash_loop_and_cost_a_restart(policy: dict[str, object]) -> None:
    play = running(2, steps=False, max_restarts=5, **policy)
    for used in range(1, 6):
        play.crash("worker-1", code=3, step=0)
        play.until_next(2)
        assert play.restarts_used() == used
    play.crash("worker-1", code=3, step=0)
    play.until(lambda: play.ended() is not None, 10)
    assert "all 5 restarts of the budget are used" in play.message


def verdict(end: WorkerExit, **policy: object) -> str:
    state = State(spec=job(2, **policy))
    member = Member(MemberId("worker-0"), Role("worker"), RankIndex(0), 0.0)
    return failure_policy.of_exit(state, Generation(1, 1), member, 0, end)[0]


def test_the_first_rule_that_names_the_code_decides() -> None:
    both = (rule("replace", 3), rule("fail", 3, 4))
    actions = {code: verdict(WorkerExit(0, 1, code), rules=both, permanent_codes=(5,)) for code in (0, 3, 4, 5, 6)}
    assert actions == {0: "", 3: "replace", 4: "fail", 5: "fail", 6: ""}
    assert verdict(WorkerExit(0, 1, None, 11), rules=(rule("fail", 139),)) == "fail"


def test_a_rule_is_skipped_until_it_has_matched_often_enough_and_then_counts_again() -> None:
    often = Rule((13,), "replace", times=3, within=100.0)
    play = running(3, rules=(often,), max_restarts=100, permanent_codes=())
    for _ in range(2):
        play.crash("worker-1", code=13)
        play.until_next(3)
    play.crash("worker-2", code=13)
    play.until_next(3)
    assert not play.announced("MemberFailed"), "worker-2 matched once, and counts for itself"
    play.crash("worker-1", code=13)
    play.until_next(3)
    (failed,) = play.announced("MemberFailed")
    assert failed.member == "worker-1"
    assert "rule 1 of recovery.rules requires replace for exit code 13, met 3 times within 100 s." in failed.reason
    play.run(1)
    assert [whose for _rule, whose, _at in play.handed_over()["hits"]] == ["worker-2"]


def test_matches_older_than_the_window_of_a_rule_do_not_count() -> None:
    play = running(2, rules=(Rule((13,), "replace", times=2, within=60.0),), max_restarts=100)
    play.crash("worker-1", code=13)
    play.until_next(2)
    play.run(61)
    play.crash("worker-1", code=13)
    play.until_next(2)
    assert not play.announced("MemberFailed")
    play.run(50)
    play.crash("worker-1", code=13)
    play.until_next(2)
    assert play.announced("MemberFailed")


def test_a_rule_that_fails_the_job_counts_the_matches_of_all_members() -> None:
    play = running(3, rules=(Rule((13,), "fail", times=2, within=60.0),), max_restarts=100)
    play.crash("worker-1", code=13)
    play.until_next(3)
    play.crash("worker-2", code=13)
    play.until(lambda: play.ended() is not None, 10)


def test_an_exit_that_is_reported_twice_counts_once() -> None:
    play = running(2, rules=(Rule((13,), "fail", times=2, within=60.0),), max_restarts=100)
    generation = play.generation
    play.crash("worker-1", code=13)
    play.say(play["worker-1"], Exited(generation, (WorkerExit(0, 5, 13),), 0))
    play.until_next(2)
    play.run(5)
    assert play.ended() is None


def test_a_new_master_continues_the_count() -> None:
    play = running(2, rules=(Rule((13,), "replace", times=2, within=600.0),), max_restarts=100)
    play.crash("worker-1", code=13)
    play.until_next(2)
    play.run(15)
    after = successor(play)
    after.until_running(2)
    after.crash("worker-1", code=13)
    after.until_next(2)
    assert after.announced("MemberFailed")


def test_a_dry_run_is_reported_and_skipped() -> None:
    play = running(3, rules=(Rule((13,), "fail", dry_run=True), rule("replace", 13)))
    play.crash("worker-1", code=13)
    play.until_next(3)
    (event,) = play.announced("RuleDryRun")
    assert event.reason == (
        "Rank 1 on worker-1 exited with code 13: rule 1 of recovery.rules requires fail for exit code 13. Nothing "
        "is done, because dryRun is set; remove it to apply the rule."
    )
    assert play.announced("MemberFailed")[0].member == "worker-1"
    assert play.ended() is None
