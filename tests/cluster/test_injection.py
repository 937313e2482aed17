"""Pods that users make themselves: what the label does to them, and that nothing is done without it."""

from __future__ import annotations

from tests.cluster.cluster import Pods, pod_spec, until
from tests.cluster.conftest import MakePods
from tests.cluster.owners import LABEL


def test_a_pod_without_the_label_is_left_alone(pods: MakePods) -> None:
    job = pods("untouched")
    spec = {**pod_spec(job.folder, "true"), "restartPolicy": "Never"}
    job.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "untouched"}, "spec": spec})
    pod = until(lambda: job.pods().get("untouched"), "the pod")
    assert [container["name"] for container in pod["spec"]["containers"]] == ["trainer"]
    assert "shareProcessNamespace" not in pod["spec"]


SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def test_a_guaranteed_pod_stays_one_and_keeps_its_hook_its_probe_and_its_security_context(pods: MakePods) -> None:
    job = pods("kept")
    amounts = {"cpu": "200m", "memory": "400Mi"}
    probe = {"exec": {"command": ["test", "-f", "/work/is-ready"]}, "periodSeconds": 1}
    hook = {"preStop": {"exec": {"command": ["touch", "/work/was-stopped"]}}}
    asked = {"resources": {"requests": amounts, "limits": amounts}, "readinessProbe": probe, "lifecycle": hook,
             "securityContext": SECURITY}  # fmt: skip
    spec = {**pod_spec(job.folder, **asked), "restartPolicy": "Never"}
    spec["containers"][0]["volumeMounts"] += [{"name": "tmp", "mountPath": "/tmp"}]  # torch finds none without it
    spec["volumes"] += [{"name": "tmp", "emptyDir": {}}]
    job.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": job.name, "labels": LABEL}, "spec": spec})
    job.training(1)
    pod = job.pods()[job.name]
    assert pod["status"]["qosClass"] == "Guaranteed"
    trainer = pod["spec"]["containers"][0]
    assert trainer["name"] == "trainer"
    for field, value in asked.items():
        assert trainer[field].items() >= value.items()  # and the API server's defaults
    assert not is_ready(job)
    (job.folder / "is-ready").touch()
    until(lambda: is_ready(job), job.story)
    job.kubectl("delete", "pod", job.name, "--wait=false")
    until((job.folder / "was-stopped").exists, job.story)


def is_ready(job: Pods) -> bool:
    statuses = job.pods()[job.name]["status"]["containerStatuses"]
    return next(bool(status["ready"]) for status in statuses if status["name"] == "trainer")
