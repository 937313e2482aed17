"""What a job has besides its pods, where something of that name is there already."""

from __future__ import annotations

from tests.cluster.cluster import pod_spec, until
from tests.cluster.conftest import MakePods


def test_what_is_there_under_a_name_of_ours_is_left_alone_and_told(pods: MakePods) -> None:
    job = pods("taken")
    service = {"metadata": {"name": "taken-worker-0"}, "spec": {"selector": {"app": "other"}, "ports": [{"port": 80}]}}
    job.create({"apiVersion": "v1", "kind": "Service", **service})
    other = {"restartPolicy": "Never", "containers": pod_spec(job.folder, "sleep", "1000")["containers"]}
    for container in other["containers"]:
        del container["volumeMounts"]
    job.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken-worker-0"}, "spec": other})
    member = {"replicas": 1, "template": {"spec": pod_spec(job.folder, "sleep", "1000")}}
    kind = {"apiVersion": "outrider.dev/v1alpha1", "kind": "ElasticJob"}
    spec = {"replicaSpecs": {"worker": member, "ps": member}}
    job.create({**kind, "metadata": {"name": job.name}, "spec": spec})
    job.event("ServiceConflict", "taken-worker-0")
    job.event("CreateFailed", "taken-worker-0 of another owner already exists")
    job.kubectl("delete", "pod", "taken-worker-0", "--grace-period=0", "--force")
    until(lambda: job.pods().get("taken-worker-0", {}).get("metadata", {}).get("ownerReferences"), job.story)
