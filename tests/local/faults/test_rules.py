"""A real job whose ranks write lines that rules are about: nothing is done in a dry run, and a member is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local import plain
from tests.local.chapters import live_through
from tests.local.training import Training, members, one_job, pids, until

pytestmark = pytest.mark.slow
SIZE = 2
RULES = """
rules:
  - {logPattern: "a test run of (?P<what>\\\\w+)", action: fail, dryRun: true}
  - {logPattern: "(a+)+$", action: fail}
  - {logPattern: uncorrectable ECC, action: replace}
  - {logPattern: wants a restart, action: restart, times: 2, within: 1h}
"""


def a_dry_run_of_a_rule_is_told_and_training_goes_on(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    job.order(1, "print('this is a test run of rules')")
    event = job.event("RuleDryRun", mark, "Rank 1 on", 'wrote "this is a test run of rules": rule 1', "requires fail")
    assert event["member"] == members(world)[1]
    job.training(SIZE, more=30)
    again, same = job.now()
    assert (again, pids(same)) == (restart, pids(world))


def what_rank_0_says_of_its_loss_is_in_the_status(job: Training) -> None:
    job.training(SIZE)
    mark = job.mark()
    job.order(0, "print('a loss of 0.25'); print('a loss of nan')")
    job.event("MetricsInvalid", mark, 'loss is "nan"')
    job.order(0, "print('a loss of 0.125')")
    until(lambda: job.status()["metrics"].get("loss") == 0.125)


def a_catastrophic_pattern_is_dropped_by_name_and_training_goes_on(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    job.order(0, "print('a' * 60 + 'b')")
    job.event("RuleDisabled", mark, '"(a+)+$", the logPattern of rule 2', "more than 50 ms of CPU for one line")
    job.training(SIZE, more=30)
    again, same = job.now()
    assert (again, pids(same)) == (restart, pids(world))


def a_member_that_writes_the_line_of_a_rule_is_replaced(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark, victim = job.mark(), members(world)[1]
    job.order(1, "import sys; print('CUDA error: uncorrectable ECC error', file=sys.stderr)")
    event = job.event("MemberFailed", mark, f"Rank 1 on {victim}", "rule 3 of recovery.rules requires replace")
    assert event["member"] == victim
    _, new = job.training(SIZE, after=restart)
    assert victim not in members(new)


def a_rule_that_is_followed_the_second_time_lets_all_begin_again_in_place(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    job.order(0, "print('rank 0 wants a restart')")
    job.training(SIZE, more=30)
    assert job.now()[0] == restart
    job.order(1, "print('rank 1 wants a restart')")
    job.event("LogRuleMet", mark, "Rank 1 on", "2 times within 3600 s")
    _, new = job.training(SIZE, after=restart)
    assert members(new) == members(world)
    job.end_well()


def test_a_job_whose_ranks_write_what_rules_are_about(tmp_path: Path, subtests: pytest.Subtests) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    flags = ("--nnodes", str(SIZE), "--rules", str(rules), "--metrics", r"a loss of (?P<loss>\S+)")
    with one_job(tmp_path, *flags, script=plain.SCRIPT) as job:
        live_through(
            subtests,
            job,
            a_dry_run_of_a_rule_is_told_and_training_goes_on,
            what_rank_0_says_of_its_loss_is_in_the_status,
            a_catastrophic_pattern_is_dropped_by_name_and_training_goes_on,
            a_member_that_writes_the_line_of_a_rule_is_replaced,
            a_rule_that_is_followed_the_second_time_lets_all_begin_again_in_place,
        )
