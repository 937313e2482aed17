"""Rules of the user about lines that the ranks write."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from outrider.master.core.actions import CreatePod, DeletePod
from outrider.master.core.events import SpecChanged
from outrider.master.core.history import document
from outrider.master.core.spec import Rule
from outrider.wire.messages.generation import Start
from outrider.wire.messages.log_lines import LineMatched, PatternDropped
from outrider.wire.messages.membership import Finish
from tests.unit.master.core.membership.test_masters import successor
from tests.unit.master.core.play import Play, job, running

ECC = "uncorrectable ECC"
SERIALS = count(1)


def rule(action: str, pattern: str = ECC, *, times: int = 1, within: float = 0.0, dry_run: bool = False) -> Rule:
    return Rule((), action, log_pattern=pattern, times=times, within=within, dry_run=dry_run)


def writes(play: Play, member: str, pattern: str = ECC, lines: int = 1, serial: int = 0) -> None:
    actor = play[member]
    assert actor.start is not None
    match = LineMatched(actor.highest, actor.start.first_rank, pattern, "CUDA: uncorrectable ECC error",
                       serial or next(SERIALS), lines)  # fmt: skip
    play.say(actor, match)


def test_output_is_searched_for_the_patterns_of_the_rules_only() -> None:
    play = Play(job(2, rules=(rule("fail"), rule("replace"), Rule((3,), "fail"), rule("restart", "NaN"))))
    play.until_running(2)
    assert {send.message.patterns for send in play.sent(Start)} == {(ECC, "NaN")}  # type: ignore[union-attr]
    play = Play(job(2))
    play.until_running(2)
    assert {send.message.patterns for send in play.sent(Start)} == {()}  # type: ignore[union-attr]


def test_a_member_is_replaced_for_a_line_and_the_reason_names_rule_rank_and_line() -> None:
    play = running(3, rules=(rule("restart", "other"), rule("replace")))
    writes(play, "worker-1")
    play.until_next(3)
    (finish,) = play.sent(Finish)
    assert (finish.member, finish.message.exit_code) == ("worker-1", 1)  # type: ignore[union-attr]
    assert sorted(play.world) == ["worker-0", "worker-2", "worker-3"]
    assert [f.reason for f in play.faults()] == [
        'Rank 1 on worker-1 wrote "CUDA: uncorrectable ECC error": rule 2 of recovery.rules requires replace for '
        'logPattern "uncorrectable ECC".'
    ]
    assert play.restarts_used() == 0


def test_the_line_is_evidence_in_the_history() -> None:
    play = running(3, rules=(rule("replace"),))
    writes(play, "worker-1")
    play.until_next(3)
    (fault,) = document.part(play.state, play.now)["faults"]
    assert {"what": "line", "member": "worker-1", "rank": 1, "line": "CUDA: uncorrectable ECC error"} in fault[
        "evidence"
    ]


def test_new_pods_avoid_its_node_if_the_rule_requires_it() -> None:
    play = Play(job(2, rules=(rule("replaceNode"),)))
    play.nodes = {"worker-0": "a", "worker-1": "b", "worker-2": "a"}
    play.until_running(2)
    writes(play, "worker-1")
    play.until_next(2)
    made = [a for a in play.actions if isinstance(a, CreatePod)]
    assert (made[-1].member, made[-1].avoid) == ("worker-2", ("b",))


def test_a_line_may_end_the_job() -> None:
    play = running(3, rules=(rule("fail"),))
    writes(play, "worker-2")
    play.until(lambda: play.ended() is not None, 10)
    assert play.exit_code == 1
    assert play.message.startswith('Rank 2 on worker-2 wrote "CUDA: uncorrectable ECC error": rule 1')


def test_ranks_that_write_the_line_each_time_do_not_restart_for_ever() -> None:
    play = running(2, rules=(rule("restart"),), max_restarts=3)
    for used in range(1, 4):
        writes(play, "worker-1")
        play.until_next(2)
        assert play.restarts_used() == used
    writes(play, "worker-1")
    play.until(lambda: play.ended() is not None, 10)
    assert play.message.endswith("all 3 restarts of the budget are used.")


def test_a_line_from_before_a_restart_causes_no_second_one_but_still_counts_against_its_member() -> None:
    for action, is_applied in (("restart", False), ("replace", True)):
        play = running(2, rules=(rule(action),))
        before = play.generation
        play.crash("worker-0", code=1)
        play.until_next(2)
        play.say(play["worker-1"], LineMatched(before, 1, ECC, "late", next(SERIALS)))
        play.run(10)
        assert play.generation.number == (3 if is_applied else 2)
        assert bool(play.announced("MemberFailed")) is is_applied


def test_a_rank_that_writes_the_line_and_dies_costs_no_restart_if_its_member_is_replaced() -> None:
    play = running(3, rules=(rule("replace"),))
    play.crash("worker-1", code=1, error="RuntimeError", message="CUDA error")
    play.run(0.005)
    writes(play, "worker-1")
    play.until_next(3)
    play.run(5)
    assert play.restarts_used() == 0
    assert sorted(play.world) == ["worker-0", "worker-2", "worker-3"]


def test_a_line_that_is_reported_again_counts_once_for_the_next_master_too() -> None:
    play = running(2, rules=(rule("fail", times=2, within=600.0),))
    writes(play, "worker-1", serial=1_000_001)
    writes(play, "worker-1", serial=1_000_001)
    play.run(15)
    after = successor(play)
    writes(after, "worker-1", serial=1_000_001)
    after.until_running(2)
    after.run(5)
    assert after.ended() is None
    writes(after, "worker-1", serial=1_000_002)
    after.until(lambda: after.ended() is not None, 10)


def test_lines_that_are_reported_together_count_each() -> None:
    play = running(2, rules=(rule("replace", times=3, within=60.0),))
    writes(play, "worker-1", lines=2)
    play.run(1)
    assert not play.announced("MemberFailed")
    writes(play, "worker-1", lines=1)
    assert play.announced("MemberFailed")


def test_a_new_master_applies_the_rule_once_it_knows_the_generation() -> None:
    play = running(2, rules=(rule("replace"),))
    after = successor(play)
    after.until(lambda: after["worker-0"].session.startswith("m2"), 10)
    assert after.stage == "rebuilding"
    writes(after, "worker-0")
    assert not after.announced("MemberFailed")
    after.until_next(2)
    assert "worker-0" not in after.world


def test_a_dry_run_reports_what_would_be_done() -> None:
    play = running(2, rules=(rule("replace", dry_run=True),))
    writes(play, "worker-1", lines=4)
    writes(play, "worker-0")
    play.run(10)
    (event,) = play.announced("RuleDryRun")
    assert event.reason == (
        'Rank 1 on worker-1 wrote "CUDA: uncorrectable ECC error" (4 such lines): rule 1 of recovery.rules requires '
        'replace for logPattern "uncorrectable ECC". Nothing is done, because dryRun is set; remove it to apply the '
        "rule."
    )
    assert play.is_running(2)
    assert play.generation.number == 1
    play.run(60)
    writes(play, "worker-0")
    assert len(play.announced("RuleDryRun")) == 2, "once a minute"


def test_the_pod_of_another_controller_is_deleted_and_one_without_a_controller_stays() -> None:
    for has_controller in (True, False):
        play = Play(replace(job(2, 1, rules=(rule("replace"),)), is_adopted=True))
        play.run(0.1)
        play.appears("train-0", 0)
        play.appears("train-1", 1)
        play.until_running(2)
        play.tell(replace(play.pod(play["train-1"]), has_controller=has_controller))
        writes(play, "train-1")
        assert [a.member for a in play.actions if isinstance(a, DeletePod)] == ["train-1"] * has_controller
        assert bool(play.announced("PodNotDeleted")) is not has_controller


def test_the_next_generation_waits_for_the_ranks_on_a_pod_that_is_being_deleted() -> None:
    """Otherwise two generations would write one checkpoint."""
    play = Play(replace(job(2, 1, rules=(rule("replace"),)), is_adopted=True))
    play.run(0.1)
    play.appears("train-0", 0)
    play.appears("train-1", 1)
    play.until_running(2)
    play.stuck.add("train-1")
    play["train-1"].stubborn = True
    writes(play, "train-1")
    play.crash("train-0")
    play.run(3.0)
    assert play.stage == "stopping", "its ranks run, and it is heard"
    play.lose("train-1", "deleted")
    play.until_running(1, 1.0)


def test_a_pattern_that_is_too_slow_is_disabled_and_reported_once() -> None:
    play = running(2, rules=(rule("fail", "(a+)+$"), rule("replace")))
    for member in ("worker-0", "worker-1"):
        dropped = PatternDropped(play.generation, "(a+)+$", "it took more than 50 ms of CPU for one line", "aaab")
        play.say(play[member], dropped)
    (event,) = play.announced("RuleDisabled")
    assert event.reason == (
        '"(a+)+$", the logPattern of rule 1 of recovery.rules, is disabled until the rule is edited: on worker-0 '
        'it took more than 50 ms of CPU for one line: "aaab".'
    )
    writes(play, "worker-1", "(a+)+$")
    play.run(1)
    assert play.ended() is None
    writes(play, "worker-1")
    play.until_next(2)
    assert {send.message.patterns for send in play.sent(Start)} == {(ECC,)}  # type: ignore[union-attr]
    after = successor(play)
    after.until_running(2)
    after.crash("worker-0")
    after.until_next(2)
    assert {send.message.patterns for send in after.sent(Start)} == {(ECC,)}  # type: ignore[union-attr]


def test_a_rule_that_is_added_later_applies_from_the_next_generation() -> None:
    play = running(2)
    play.tell(SpecChanged(replace(play.spec, rules=(rule("replace"),))))
    play.crash("worker-0", code=1)
    play.until_next(2)
    assert {send.message.patterns for send in play.sent(Start)} == {(ECC,)}  # type: ignore[union-attr]
    play.tell(SpecChanged(replace(play.spec, rules=())))
    writes(play, "worker-1")
    play.run(10)
    assert not play.announced("MemberFailed")
