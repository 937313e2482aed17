"""What a job has besides its pods: a budget that a drain respects, addresses, and the size of its owner."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.cluster.cluster import Document, Pods, pod_spec, until
from tests.cluster.conftest import Make, MakePods
from tests.cluster.reading import listed, policy, shown
from tests.cluster.test_pytorchjob import Operator
from tests.local.training import members


def evicted(job: Pods, pod: str) -> str:
    """Empty where the API server takes the eviction, else why it does not."""
    eviction = {"apiVersion": policy(), "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{job.namespace}/pods/{pod}/eviction"
    done = subprocess.run(
        ["kubectl", "create", "--raw", path, "-f", "-"], input=json.dumps(eviction), capture_output=True, text=True
    )
    return "" if done.returncode == 0 else done.stderr


def budget(job: Pods) -> Document:
    """The one of the job's name; empty while there is none."""
    found = listed("poddisruptionbudgets", job.namespace)
    return next((each for each in found if each["metadata"]["name"] == job.name), {})


def allows(job: Pods, number: int) -> Document:
    def found() -> Document | None:
        now = budget(job)
        return now if now.get("status", {}).get("disruptionsAllowed") == number else None

    return until(found, lambda: f"{number} disruptions to be allowed: {budget(job)} {job.story()}")


# -- drains ---------------------------------------------------------------------------------------------------------
def test_a_drain_takes_the_next_member_when_the_replacement_of_the_first_is_there(make: Make) -> None:
    job = make()
    restart, _ = job.training(4)
    assert allows(job, 1)["spec"]["maxUnavailable"] == 1
    assert not evicted(job, job.pod("worker-0"))
    assert "disruption budget" in evicted(job, job.pod("worker-1"))
    restart, world = job.training(4, after=restart)
    assert set(members(world)) == {job.pod("worker-1"), job.pod("worker-2")}
    until(lambda: not evicted(job, job.pod("worker-1")), job.story)
    _, world = job.training(4, after=restart)
    assert set(members(world)) == {job.pod("worker-2"), job.pod("worker-3")}


def test_a_job_of_one_member_never_holds_a_drain(make: Make) -> None:
    job = make(replicas=1)
    job.training(2)
    allows(job, 1)
    assert not evicted(job, job.pod("worker-0"))


def test_the_pods_of_a_job_whose_kind_tells_no_size_are_counted(pods: MakePods) -> None:
    """A Job has no scale subresource: a budget with maxUnavailable would let none of its pods go."""
    job = pods("plain-job")
    spec = {"completions": 2, "parallelism": 2, "template": template(job, "Never")}
    job.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec})
    job.training(2)
    assert allows(job, 1)["spec"]["minAvailable"] == 1


@pytest.mark.exhaustive
def test_pods_that_a_budget_of_the_users_selects_are_left_to_it(pods: MakePods) -> None:
    job = pods("with-budget")
    selector = {"matchLabels": {"app": job.name}}
    own = {"maxUnavailable": 2, "selector": selector}
    kind = {"apiVersion": policy(), "kind": "PodDisruptionBudget"}
    job.create({**kind, "metadata": {"name": "the-users"}, "spec": own})
    stateful_set(job)
    restart, _ = job.training(4)
    job.event("BudgetLeft", "the-users")
    assert not budget(job)
    assert not evicted(job, f"{job.name}-1"), "the API server evicts no pod that two budgets select"
    job.training(4, after=restart)


# -- owners ---------------------------------------------------------------------------------------------------------
def template(pods: Pods, restart: str, **annotations: str) -> Document:
    notes = {f"outrider.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    labels = {"app": pods.name, "outrider.dev/inject": "true"}
    return {"metadata": {"labels": labels, "annotations": notes},
            "spec": {**pod_spec(pods.folder), "restartPolicy": restart}}  # fmt: skip


def stateful_set(pods: Pods, **annotations: str) -> None:
    spec = {
        "replicas": 2,
        "serviceName": pods.name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": pods.name}},
        "template": template(pods, "Always", nproc_per_node="2", **annotations),
    }
    pods.create({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": pods.name}, "spec": spec})


def replicas(pods: Pods, kind: str) -> int:
    spec = shown(kind, pods.name, pods.namespace)["spec"]
    return int(spec["replicas"] if kind == "statefulsets" else spec["replicaSpecs"]["worker"]["replicas"])


def test_scaling_an_adopted_stateful_set_reaches_its_owner_and_the_other_way_it_is_followed(pods: MakePods) -> None:
    job = pods("ordinals")
    stateful_set(job, min="1", max="4")
    restart, _ = job.training(4)
    job.kubectl("scale", "elasticjob", job.name, "--replicas=3")
    until(lambda: replicas(job, "statefulsets") == 3, job.story)
    restart, world = job.training(6, after=restart)
    assert f"{job.name}-2" in members(world)
    job.kubectl("scale", "statefulset", job.name, "--replicas=2")
    job.event("OwnerResized", "2 pods instead of 3")
    until(lambda: replicas(job, "elasticjobs") == 2, job.story)
    restart, _ = job.training(4, after=restart)
    job.kubectl("scale", "elasticjob", job.name, "--replicas=1")
    restart, world = job.training(2, after=restart)
    until(lambda: replicas(job, "statefulsets") == 1 and set(job.pods()) == {f"{job.name}-0"}, job.story)
    same, _ = job.training(2, more=30)
    assert same == restart, "the owner's pod was taken after the world had left it"


def test_a_job_whose_completions_are_fixed_is_not_resized_and_says_so(pods: MakePods) -> None:
    job = pods("fixed")
    spec = {"completions": 2, "parallelism": 2, "template": template(job, "Never", max="4")}
    job.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec})
    restart, _ = job.training(2)
    job.kubectl("scale", "elasticjob", job.name, "--replicas=3")
    job.event("SpecRefused", "Job fixed has 2 completions, which cannot be changed")

    def refused() -> bool:
        conditions = job.status().get("conditions") or ()
        return any(each["type"] == "Valid" and each["status"] == "False" for each in conditions)

    until(refused, job.story)
    same, _ = job.training(2, more=30)
    assert same == restart


def test_scaling_a_job_without_completions_changes_its_parallelism_and_what_a_drain_may_take(pods: MakePods) -> None:
    job = pods("queue")
    spec = {"parallelism": 2, "template": template(job, "Never", min="1", max="4")}
    job.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec})
    restart, _ = job.training(2)
    assert allows(job, 1)["spec"]["minAvailable"] == 1
    job.kubectl("scale", "elasticjob", job.name, "--replicas=3")
    until(lambda: shown("jobs", job.name, job.namespace)["spec"]["parallelism"] == 3, job.story)
    job.training(3, after=restart)
    assert allows(job, 1)["spec"]["minAvailable"] == 2


def test_scaling_an_adopted_pytorchjob_changes_its_workers(pods: MakePods, pytorchjobs: None) -> None:
    job = pods("mnist")
    operator = Operator(job, workers=1)
    operator.make("master", 0)
    operator.make("worker", 0)
    restart, _ = job.training(4)
    job.kubectl("patch", "elasticjob", job.name, "--type=merge", "-p",
                json.dumps({"spec": {"replicaSpecs": {"worker": {"replicas": 3, "maxReplicas": 3}}}}))  # fmt: skip

    def workers() -> object:
        return shown("pytorchjobs", job.name, job.namespace)["spec"]["pytorchReplicaSpecs"]

    until(lambda: workers()["Worker"]["replicas"] == 2, job.story)  # type: ignore[index]
    assert workers()["Master"]["replicas"] == 1  # type: ignore[index]
    operator.make("worker", 1)
    job.training(6, after=restart)


# -- addresses ------------------------------------------------------------------------------------------------------
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
    job.event("ServiceLeft", "taken-worker-0")
    until(lambda: any("not this job's" in e["message"] and "pod" in e["message"] for e in job.events()), job.story)
    job.kubectl("delete", "pod", "taken-worker-0", "--grace-period=0", "--force")
    until(lambda: job.pods().get("taken-worker-0", {}).get("metadata", {}).get("ownerReferences"), job.story)
