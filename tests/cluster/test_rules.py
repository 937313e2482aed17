"""Rules by exit code and by log line: whom they replace, and where; what is kept of pods that failed."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import ClusterJob, apart, until
from tests.cluster.conftest import Make
from tests.cluster.reading import Document
from tests.cluster.test_memory import failed, trainer_end
from tests.local.chapters import live_through
from tests.local.training import members

RULES: list[Document] = [
    {"logPattern": r"lost (?P<what>\w+)", "action": "fail", "dryRun": True},
    {"logPattern": "uncorrectable ECC", "action": "replace"},
    {"exitCodes": [13], "action": "replaceNode"},
]


def test_rules(make: Make, subtests: pytest.Subtests) -> None:
    live_through(
        subtests,
        make(
            pod=apart({"outrider.dev/job": "train"}),  # the only node of a job is never excluded
            recovery={"silentAfter": "15s", "rules": RULES},
            keepFailedPods=1,
        ),
        a_dry_run_is_only_told,
        a_member_whose_rank_ends_with_the_code_of_a_rule_is_replaced_on_another_node,
        a_pod_whose_rank_writes_the_line_of_a_rule_is_replaced,
        failed_pods_are_kept_as_many_as_wanted_and_hold_nothing,
    )


def a_dry_run_is_only_told(job: ClusterJob) -> None:
    restart, world = job.training(4)
    pod = members(world)[2]
    job.order(2, "print('lost patience', flush=True)")
    wrote = f'Rank 2 on {job.member(pod)} wrote "lost patience": rule 1 of recovery.rules requires fail'
    assert "Nothing is done, because dryRun is set" in job.event("RuleDryRun", wrote)["message"]
    assert "lost patience\n" in job.kubectl("logs", pod, "-c", "trainer")
    assert job.now()[0] == restart


def replaced(job: ClusterJob, order: str) -> tuple[str, str]:
    """The pod of rank 3, which is given an order that it does not survive, and the one that has its place."""
    restart, before = job.training(4)
    job.order(3, order)
    _, world = job.training(4, after=restart)
    assert members(world)[:2] == members(before)[:2]
    return members(before)[3], members(world)[3]


def a_member_whose_rank_ends_with_the_code_of_a_rule_is_replaced_on_another_node(job: ClusterJob) -> None:
    old, new = replaced(job, "os._exit(13)")
    ended = failed(job, old)
    assert trainer_end(ended)["exitCode"] == 13
    node = ended["spec"]["nodeName"]
    assert job.pods()[new]["spec"]["nodeName"] != node
    job.event("MemberFailed", "rule 3 of recovery.rules requires replaceNode for exit code 13")
    until(lambda: job.status().get("excludedNodes") == [node], job.story)


def a_pod_whose_rank_writes_the_line_of_a_rule_is_replaced(job: ClusterJob) -> None:
    """The pod that failed before it goes: one is kept."""
    before = set(job.pods())
    old, _new = replaced(job, "import sys; print('CUDA error: uncorrectable ECC error', file=sys.stderr)")
    rank = f"Rank 3 on {job.member(old)}"
    job.event("MemberFailed", rank, "rule 2 of recovery.rules requires replace", "uncorrectable ECC")
    failed(job, old)
    until(lambda: not before.issubset(job.pods()), job.story)


def failed_pods_are_kept_as_many_as_wanted_and_hold_nothing(job: ClusterJob) -> None:
    """The template of the third is killed."""
    restart, world = job.training(4)
    first, pod, before = members(world)[0], members(world)[3], set(job.pods())
    job.execute(pod, f"kill -9 {job.pid_of(pod, 'outrider-tmpl')}")
    _, world = job.training(4, after=restart)
    new = members(world)[3]
    failed(job, pod)
    until(lambda: set(job.pods()) == {first, pod, new}, job.story)
    (gone,) = before - {first, pod}
    job.event("FailedPodDeleted", job.member(gone), "keepFailedPods")
    assert job.pods()[new]["metadata"]["labels"]["outrider.dev/relaunches"] == "3"
