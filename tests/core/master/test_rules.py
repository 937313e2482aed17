"""What the user says about exit codes goes before what we would do."""

from __future__ import annotations

import pytest

from master.core import rules
from master.core.actions import CreatePod
from master.core.spec import Rule
from tests.core.master.play import Play, job, running
from wire.messages import Finish, WorkerExit


def rule(action: str, *codes: int) -> Rule:
    return Rule(codes, action)


def test_a_permanent_code_ends_the_job_at_once() -> None:
    play = running(3, permanent_codes=(3,))
    play.crash("worker-1", code=3)
    play.until(lambda: play.ended() is not None, 10)
    assert play.state.message == "Rank 1 on worker-1 exited with code 3; exit code 3 is permanent (recovery.exitCodes)."
    assert play.state.exit_code == 3


def test_a_rule_may_end_the_job_with_the_scripts_own_traceback() -> None:
    play = running(3, rules=(rule("fail", 1),))
    play.crash("worker-1", code=1, error="ValueError", message="bad label 17")
    play.until(lambda: play.ended() is not None, 10)
    (failed,) = play.announced("JobFailed")
    assert "rule 1 of recovery.rules says fail for exit code 1" in failed.reason
    assert ("traceback", "Traceback …") in failed.detail


def test_the_error_that_another_rank_brings_about_is_nobodys_rule() -> None:
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


def test_a_member_is_replaced_where_a_rule_says_so_and_its_pod_stays() -> None:
    play = running(3, rules=(rule("replace", 13),))
    play.crash("worker-1", code=13)
    play.until_next(3)
    (finish,) = play.sent(Finish)
    assert (finish.member, finish.message.exit_code) == ("worker-1", 13)  # type: ignore[union-attr]
    assert sorted(play.world) == ["worker-0", "worker-2", "worker-3"]
    assert not play.deleted()
    assert [f.reason for f in play.state.faults] == [
        "Rank 1 on worker-1 exited with code 13: rule 1 of recovery.rules says replace for exit code 13."
    ]


def test_a_rule_may_keep_new_pods_off_the_node() -> None:
    play = Play(job(2, rules=(rule("replaceNode", 13),)))
    play.nodes = {"worker-0": "a", "worker-1": "b", "worker-2": "a"}
    play.until_running(2)
    play.run(2)
    play.crash("worker-1", code=13)
    play.until_next(2)
    made = [a for a in play.actions if isinstance(a, CreatePod)]
    assert (made[-1].member, made[-1].avoid) == ("worker-2", ("b",))
    assert "says replaceNode" in play.announced("NodeAvoided")[0].reason


def test_more_than_half_of_the_nodes_are_never_kept_off() -> None:
    play = Play(job(2, rules=(rule("replaceNode", 13),)))
    play.nodes = {f"worker-{n}": "only" for n in range(4)}
    play.until_running(2)
    play.run(2)
    play.crash("worker-1", code=13)
    play.until_next(2)
    assert [a for a in play.actions if isinstance(a, CreatePod)][-1].avoid == ()


def test_a_rule_goes_before_our_own_remedy() -> None:
    play = Play(job(2, rules=(rule("restart", 137),)))
    play.memory_limit = 700 * 2**20
    play.until_running(2)
    play.run(2)
    play.crash("worker-1", signal=9, out_of_memory=True)
    play.until_next(2)
    assert not play.sent(Finish)
    assert play.state.memory == {}


@pytest.mark.parametrize("policy", [{"retryable_codes": (3,)}, {"rules": (rule("restart", 3),)}])
def test_what_is_worth_another_try_is_never_a_crash_loop_and_costs_a_restart(policy: dict[str, object]) -> None:
    play = running(2, steps=False, max_restarts=5, **policy)
    for used in range(1, 6):
        play.crash("worker-1", code=3, step=0)
        play.until_next(2)
        assert play.state.restarts.used == used
    play.crash("worker-1", code=3, step=0)
    play.until(lambda: play.ended() is not None, 10)
    assert "all 5 restarts of the budget are used" in play.state.message


def test_the_first_rule_that_names_the_code_decides() -> None:
    spec = job(2, rules=(rule("replace", 3), rule("fail", 3, 4)), permanent_codes=(5,))
    actions = {code: rules.verdict(spec, WorkerExit(0, 1, code))[0] for code in (0, 3, 4, 5, 6)}
    assert actions == {0: "", 3: "replace", 4: "fail", 5: "fail", 6: ""}
    assert rules.verdict(job(2, rules=(rule("fail", 139),)), WorkerExit(0, 1, None, 11))[0] == "fail"
