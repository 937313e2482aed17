"""Pods of other controllers: a label is enough."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import Document, Pods, pod_spec, until
from tests.cluster.conftest import MakePods
from tests.cluster.reading import shown

LABEL = {"outrider.dev/inject": "true"}


def template(pods: Pods, restart: str, **annotations: str) -> Document:
    notes = {f"outrider.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec = {**pod_spec(pods.folder), "restartPolicy": restart}
    return {"metadata": {"labels": {"app": pods.name, **LABEL}, "annotations": notes}, "spec": spec}


def test_a_job_of_two_pods_trains_as_one_world_and_completes(pods: MakePods) -> None:
    job = pods("plain-job")
    spec = {"completions": 2, "parallelism": 2, "template": template(job, "Never")}
    job.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec})
    restart, world = job.training(2)
    assert job.job()["spec"]["adopts"] == {"apiVersion": "batch/v1", "kind": "Job", "name": job.name}
    victim = world[1][0].member
    job.execute(victim, f"kill -9 {job.pid_of(victim, 'rank 1')}")
    job.training(2, after=restart)
    job.end_well()
    until(lambda: shown("jobs", job.name, job.namespace)["status"].get("succeeded") == 2, job.story)


def test_a_job_that_kubernetes_gives_up_is_a_failed_job_here_too(pods: MakePods) -> None:
    job = pods("given-up")
    spec = {"completions": 2, "parallelism": 2, "template": template(job, "Never")}
    job.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec})
    job.training(2)
    job.kubectl("patch", "job", job.name, "--type=merge", "-p", '{"spec":{"activeDeadlineSeconds":1}}')
    assert "Job given-up has failed (DeadlineExceeded" in job.phase("Failed")["message"]


def stateful_set(job: Pods, **annotations: str) -> Document:
    """Of two pods that are made at once."""
    spec = {
        "replicas": 2,
        "serviceName": job.name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": job.name}},
        "template": template(job, "Always", **annotations),
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": job.name}, "spec": spec}


@pytest.mark.parametrize(("label", "became"), [("-", "was taken away"), ("=another", "says another now")])
def test_a_pod_whose_label_is_taken_away_or_changed_trains_no_more_and_comes_back_with_it(
    pods: MakePods, label: str, became: str
) -> None:
    job = pods("taken-out")
    job.create(stateful_set(job, min="1", max="2"))
    restart, _ = job.training(2)
    pod = f"{job.name}-1"
    job.kubectl("label", "pod", pod, "--overwrite", f"outrider.dev/job{label}")
    restart, alone = job.training(1, after=restart)
    assert alone[0][0].member == f"{job.name}-0"
    job.event("MemberLost", pod, f"its label outrider.dev/job {became}")
    job.kubectl("label", "pod", pod, "--overwrite", f"outrider.dev/job={job.name}")
    job.training(2, after=restart)


def test_a_stateful_set_gives_its_ordinals_as_rank_indexes(pods: MakePods) -> None:
    job = pods("ordinals")
    job.create(stateful_set(job, nproc_per_node="2"))
    restart, world = job.training(4)
    assert [steps[0].member for steps in world.values()] == [f"{job.name}-{i}" for i in (0, 0, 1, 1)]
    job.kubectl("delete", "pod", f"{job.name}-0", "--grace-period=0", "--force")
    _, new = job.training(4, after=restart)
    assert [steps[0].member for steps in new.values()] == [f"{job.name}-{i}" for i in (0, 0, 1, 1)]


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
