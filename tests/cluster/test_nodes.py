"""Nodes whose kubelet is frozen, pods that do not go, do not start or may not be made.

To freeze a kubelet is nothing that Kubernetes offers: OUTRIDER_LAB names a command of whoever runs the cluster, called
as `$OUTRIDER_LAB stop-node N` and `$OUTRIDER_LAB start-node N` for the node `node-N`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import DEADLINE, ClusterJob, Document, Pods, apart, kubectl, pod_spec, until
from tests.cluster.conftest import Make, MakePods
from tests.cluster.reading import listed, shown
from tests.local.chapters import live_through
from tests.local.training import World, members

NO_IMAGE = "outrider/nowhere:none"


class Kubelets:
    def __init__(self) -> None:
        self._command = shlex.split(os.environ["OUTRIDER_LAB"])
        self._frozen: list[str] = []

    def freeze(self, node: str) -> None:
        """Returns when the cluster has noticed."""
        self._do("stop-node", node)
        self._frozen.append(node)
        until(lambda: not is_ready(node), f"{node} to be not Ready")

    def thaw(self) -> None:
        while self._frozen:
            node = self._frozen.pop()
            self._do("start-node", node)
            until(lambda node=node: is_ready(node), f"{node} to be Ready")

    def _do(self, what: str, node: str) -> None:
        subprocess.run([*self._command, what, node.rpartition("-")[2]], check=True, timeout=DEADLINE)


def is_ready(node: str) -> bool:
    conditions = shown("nodes", node)["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@pytest.fixture
def kubelets() -> Iterator[Kubelets]:
    if not os.environ.get("OUTRIDER_LAB"):
        pytest.skip("OUTRIDER_LAB names no command that freezes and thaws a kubelet")
    two = Kubelets()
    yield two
    two.thaw()


def node_of(job: Pods, pod: str) -> str:
    return str(job.pods()[pod]["spec"]["nodeName"])


def uid_of(job: Pods, pod: str) -> str:
    """Of one that is being deleted too; empty where there is none."""
    found = listed("pods", job.namespace)
    return next((p["metadata"]["uid"] for p in found if p["metadata"]["name"] == pod), "")


def steps_of(world: World) -> int:
    return len(world[0])


@pytest.mark.alone
def test_training_goes_on_where_a_node_is_not_ready_and_a_pod_that_cannot_go_there_is_replaced(
    make: Make, kubelets: Kubelets
) -> None:
    job = make(replicas=2, least=1, pod=apart({"outrider.dev/job": "train"}))
    restart, _ = job.training(4)
    pod, node = job.pod("worker-1"), node_of(job, job.pod("worker-1"))
    assert node != node_of(job, job.pod("worker-0"))
    kubelets.freeze(node)
    assert "continue training: worker-1" in job.event("NodeNotReady", node)["message"]
    same, _ = job.training(4, more=steps_of(job.now()[1]) + 50)
    assert same == restart

    job.kubectl("delete", "pod", pod, "--grace-period=10", "--wait=false")
    job.event("MemberDraining", "worker-1", "a grace period of 10 s")
    _, new = job.training(4, after=restart)
    assert members(new) == [job.pod(f"worker-{i}") for i in (0, 0, 2, 2)]
    job.event("PodForceDeleted", "worker-1", node)
    until(lambda: not uid_of(job, pod), job.story)

    newest, world = job.now()
    kubelets.thaw()
    job.event("NodeReady", node)
    same, _ = job.training(4, more=steps_of(world) + 50)
    assert same == newest, "what was frozen disturbs nobody"


@pytest.mark.alone
def test_a_stateful_sets_pod_that_cannot_go_is_removed_by_force_so_that_it_comes_elsewhere(
    pods: MakePods, kubelets: Kubelets
) -> None:
    job = pods("ordinals")
    spec = {**pod_spec(job.folder), **apart({"app": job.name}), "restartPolicy": "Always"}
    notes = {"outrider.dev/nproc-per-node": "2", "outrider.dev/min": "1"}
    labels = {"app": job.name, "outrider.dev/inject": "true"}
    stateful_set = {
        "replicas": 2,
        "serviceName": job.name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": job.name}},
        "template": {"metadata": {"labels": labels, "annotations": notes}, "spec": spec},
    }
    job.create({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": job.name}, "spec": stateful_set})
    restart, _ = job.training(4)
    pod = f"{job.name}-1"
    node, uid = node_of(job, pod), uid_of(job, pod)
    kubelets.freeze(node)
    job.kubectl("delete", "pod", pod, "--grace-period=5", "--wait=false")
    smaller, _ = job.training(2, after=restart)
    job.event("PodForceDeleted", pod, node)
    until(lambda: uid_of(job, pod) not in ("", uid), job.story)
    job.training(4, after=smaller)
    assert node_of(job, pod) != node


def test_pods_that_may_not_be_made_or_cannot_start(make: Make, namespace: str, subtests: pytest.Subtests) -> None:
    kubectl("-n", namespace, "create", "quota", "few", "--hard=pods=1")
    until(lambda: shown("resourcequotas", "few", namespace)["status"].get("used"), "the quota to count")
    live_through(
        subtests,
        make(replicas=2, least=1),
        what_a_quota_forbids_is_told_once_and_made_when_there_is_room,
        an_image_that_cannot_be_pulled_is_told_and_the_others_train_until_it_can,
    )


def what_a_quota_forbids_is_told_once_and_made_when_there_is_room(job: ClusterJob) -> None:
    restart, _ = job.training(2)
    job.event("CreateRejected", "exceeded quota: few")
    job.kubectl("delete", "quota", "few")
    job.training(4, after=restart)
    assert len([event for event in job.events() if event["reason"] == "CreateRejected"]) == 1
    assert not [event for event in job.events() if event["reason"] == "CreateFailed"]


def an_image_that_cannot_be_pulled_is_told_and_the_others_train_until_it_can(job: ClusterJob) -> None:
    restart, world = job.training(4)
    first, second = members(world)[0], members(world)[3]
    template = job.job()["spec"]["replicaSpecs"]["worker"]["template"]
    image = template["spec"]["containers"][0]["image"]
    template["spec"]["containers"][0]["image"] = NO_IMAGE
    job.patch(replicaSpecs={"worker": {"template": template}})
    until(lambda: job.status().get("observedGeneration") == job.job()["metadata"]["generation"], job.story)
    job.delete_pod(second)
    told = job.event("PodBlocked", NO_IMAGE, "of trainer", "cannot be pulled: ")
    smaller, world = job.training(2, after=restart)
    job.training(2, after=restart, more=steps_of(world) + 100)
    (new,) = set(job.pods()) - {first}
    assert job.member(new) in told["message"], "it is not replaced"
    assert NO_IMAGE in job.status()["message"]
    job.kubectl("set", "image", f"pod/{new}", f"trainer={image}")
    job.training(4, after=smaller)


def test_a_job_whose_image_cannot_be_pulled_says_so_in_its_condition(make: Make) -> None:
    job = make(replicas=2, container={"image": NO_IMAGE})
    job.event("PodBlocked", "worker-0", NO_IMAGE)

    def condition() -> Document | None:
        found = (c for c in job.status().get("conditions", ()) if c["type"] == "Running")
        return next((c for c in found if c["reason"] == "PodsCannotStart"), None)

    told = until(condition, job.story)
    assert told["status"] == "False"
    assert f"the image {NO_IMAGE} of trainer cannot be pulled: " in told["message"]
    assert job.status()["phase"] == "Pending"
