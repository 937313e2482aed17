"""Who may speak to the master, and what is refused before anything is made."""

from __future__ import annotations

import json
import subprocess

from tests.cluster.cluster import Document, until
from tests.cluster.conftest import Make
from tests.cluster.reading import listed


def test_a_job_that_cannot_be_is_refused_with_the_fields_that_are_wrong(namespace: str) -> None:
    worker = {"replicas": 2, "minReplicas": 3, "maxReplicas": 1, "template": {"spec": {"containers": []}}}
    job = elasticjob("wrong", {"worker": worker, "cook": {"replicas": 1}})
    done = subprocess.run(
        ["kubectl", "-n", namespace, "create", "-f", "-"], input=json.dumps(job), capture_output=True, text=True
    )
    assert done.returncode != 0
    for path in ("spec.replicaSpecs.worker.minReplicas", "spec.replicaSpecs.worker.template", "cook"):
        assert path in done.stderr, done.stderr


def test_a_pod_that_claims_to_be_another_ones_member_is_refused(make: Make) -> None:
    """Its token is bound to its own pod, whatever its labels and its environment say."""
    job = make(replicas=1)
    restart, _ = job.training(2)
    victim = job.pods()[job.pod("worker-0")]
    containers = [*victim["spec"]["containers"], *victim["spec"]["initContainers"]]
    sidecar = next(c for c in containers if c["name"] == "outrider-sidecar")
    claims = {"OUTRIDER_POD_UID": victim["metadata"]["uid"], "OUTRIDER_MEMBER": "worker-0"}
    env = [{"name": e["name"], "value": claims[e["name"]]} if e["name"] in claims else e for e in sidecar["env"]]
    impostor: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "impostor", "labels": {"outrider.dev/role": "worker", "outrider.dev/rank-index": "0"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{k: v for k, v in {**sidecar, "env": env}.items()
                            if k not in ("volumeMounts", "restartPolicy")}
                           | {"volumeMounts": [m for m in sidecar["volumeMounts"] if "outrider" in m["mountPath"]]}],
            "volumes": [v for v in victim["spec"]["volumes"] if v["name"].startswith("outrider")],
        },
    }  # fmt: skip
    job.create(impostor)
    phase = ("get", "pod", "impostor", "-o", "jsonpath={.status.phase}")
    until(lambda: job.kubectl(*phase) == "Running", job.story)
    until(lambda: "is bound to another pod" in job.kubectl("logs", "impostor"), job.story)
    same, _ = job.training(2, more=30)
    assert same == restart


def test_the_pods_of_a_deleted_job_go_with_it(make: Make) -> None:
    job = make()
    job.training(4)
    job.kubectl("delete", "elasticjob", job.name)
    until(lambda: not listed("pods", job.namespace), job.story)


def elasticjob(name: str, roles: Document) -> Document:
    return {
        "apiVersion": "outrider.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": roles},
    }
