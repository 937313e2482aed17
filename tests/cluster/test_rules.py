"""Rules by log line: what a rank writes replaces its pod, and a rule that is a dry run replaces none."""

from __future__ import annotations

import json
import subprocess

from tests.cluster.cluster import FOLDERS, pod_spec
from tests.cluster.conftest import Make
from tests.cluster.reading import Document
from tests.local.training import members

RULES: list[Document] = [
    {"logPattern": r"lost (?P<what>\w+)", "action": "fail", "dryRun": True},
    {"logPattern": "uncorrectable ECC", "action": "replace"},
]


def test_a_pod_whose_rank_writes_the_line_of_a_rule_is_replaced_and_a_dry_run_is_only_told(make: Make) -> None:
    job = make(replicas=2, recovery={"silentAfter": "10s", "rules": RULES})
    restart, _ = job.training(4)
    job.order(2, "print('lost patience', flush=True)")
    told = job.event("RuleDryRun", 'Rank 2 on worker-1 wrote "lost patience": rule 1 of recovery.rules says fail')
    assert "It is a dry run: nothing is done." in told["message"]
    assert "lost patience\n" in job.kubectl("logs", job.pod("worker-1"), "-c", "trainer")
    assert job.now()[0] == restart

    job.order(3, "import sys; print('CUDA error: uncorrectable ECC error', file=sys.stderr)")
    job.event("MemberFailed", "Rank 3 on worker-1", "rule 2 of recovery.rules says replace", "uncorrectable ECC")
    _, new = job.training(4, after=restart)
    assert members(new) == [job.pod(f"worker-{i}") for i in (0, 0, 2, 2)]


def test_a_pattern_that_cannot_be_read_is_refused_at_apply(namespace: str) -> None:
    document = {
        "apiVersion": "outrider.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {
            "recovery": {"rules": [{"logPattern": "Xid (", "action": "fail"}]},
            "replicaSpecs": {"worker": {"replicas": 1, "template": {"spec": pod_spec(FOLDERS)}}},
        },
    }
    done = subprocess.run(["kubectl", "create", "-f", "-"], input=json.dumps(document), capture_output=True, text=True)
    assert done.returncode != 0
    assert "spec.recovery.rules[0].logPattern: Xid ( is no regular expression: missing )" in done.stderr
