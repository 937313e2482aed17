"""Rules by exit code and by log line: whom they replace, and where; what is kept of pods that failed."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import ClusterJob, until
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
        make(recovery={"silentAfter": "15s", "rules": RULES}, keepFailedPods=1),
        a_dry_run_is_only_told,
        a_member_whose_rank_ends_with_the_code_of_a_rule_is_replaced_on_another_node,
        a_pod_whose_rank_writes_the_line_of_a_rule_is_replaced,
        failed_pods_are_kept_as_many_as_wanted_and_hold_nothing,
    )


def a_dry_run_is_only_told(job: ClusterJob) -> None:
    restart, _ = job.training(4)
    job.order(2, "print('lost patience', flush=True)")
    told = job.event("RuleDryRun", 'Rank 2 on worker-1 wrote "lost patience": rule 1 of recovery.rules says fail')
    assert "It is a dry run: nothing is done." in told["message"]
    assert "lost patience\n" in job.kubectl("logs", job.pod("worker-1"), "-c", "trainer")
    assert job.now()[0] == restart


def a_member_whose_rank_ends_with_the_code_of_a_rule_is_replaced_on_another_node(job: ClusterJob) -> None:
    restart, _ = job.training(4)
    old = job.pods()[job.pod("worker-1")]["spec"]["nodeName"]
    job.order(3, "os._exit(13)")
    job.training(4, after=restart)
    assert trainer_end(failed(job, job.pod("worker-1")))["exitCode"] == 13
    assert job.pods()[job.pod("worker-2")]["spec"]["nodeName"] != old
    job.event("MemberFailed", "rule 3 of recovery.rules says replaceNode for exit code 13")
    until(lambda: job.status().get("avoidedNodes") == [old], job.story)


def a_pod_whose_rank_writes_the_line_of_a_rule_is_replaced(job: ClusterJob) -> None:
    restart, _ = job.training(4)
    job.order(3, "import sys; print('CUDA error: uncorrectable ECC error', file=sys.stderr)")
    job.event("MemberFailed", "Rank 3 on worker-2", "rule 2 of recovery.rules says replace", "uncorrectable ECC")
    _, new = job.training(4, after=restart)
    assert members(new) == [job.pod(f"worker-{i}") for i in (0, 0, 3, 3)]


def failed_pods_are_kept_as_many_as_wanted_and_hold_nothing(job: ClusterJob) -> None:
    """Of the two that failed before the newest one; then its successor's template is killed."""
    restart, _ = job.training(4)
    failed(job, job.pod("worker-2"))
    until(lambda: job.pod("worker-1") not in job.pods(), job.story)
    job.event("FailedPodDeleted", "worker-1", "keepFailedPods")
    pod = job.pod("worker-3")
    job.execute(pod, f"kill -9 {job.pid_of(pod, 'outrider-tmpl')}")
    job.training(4, after=restart)
    failed(job, pod)
    until(lambda: job.pod("worker-2") not in job.pods(), job.story)
    assert sorted(job.pods()) == [job.pod(f"worker-{n}") for n in (0, 3, 4)]
    assert job.pods()[job.pod("worker-4")]["metadata"]["labels"]["outrider.dev/relaunches"] == "3"
