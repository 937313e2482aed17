"""A PyTorchJob: pods as Kubeflow's training operator makes them, with a label of ours on each and nothing else.

The operator itself is not here. This test stands in for it: it makes the pods of a PyTorchJob with the labels, the
variables and the owner that the operator gives them, and makes one anew that was lost.
"""

from __future__ import annotations

import json

import pytest

from tests.cluster.cluster import Document, Pods, pod_spec, until
from tests.cluster.conftest import MakePods
from tests.cluster.reading import shown
from tests.local.chapters import live_through
from tests.local.training import members

GROUP, PLURAL, KIND = "kubeflow.org", "pytorchjobs", "PyTorchJob"
PORT = "23456"


class Operator:
    """Of one PyTorchJob with a Master and some Workers, of two processes each."""

    def __init__(self, job: Pods, workers: int) -> None:
        self.job, self.workers = job, workers
        replicas = {"Master": 1, "Worker": workers}
        specs = {role: {"replicas": count, "template": self._template()} for role, count in replicas.items()}
        metadata = {"name": job.name, "namespace": job.namespace}
        document = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "metadata": metadata}
        job.create({**document, "spec": {"pytorchReplicaSpecs": specs}})
        self._uid = shown(PLURAL, job.name, job.namespace)["metadata"]["uid"]

    def _template(self) -> Document:
        """The user's: his command, and the label."""
        metadata = {"labels": {"outrider.dev/inject": "true"}, "annotations": {"outrider.dev/nproc-per-node": "2"}}
        return {"metadata": metadata, "spec": pod_spec(self.job.folder, name="pytorch")}

    def make(self, role: str, index: int) -> None:
        job, template = self.job, self._template()
        labels = {"job-name": job.name, "operator-name": "pytorchjob-controller", "replica-type": role,
                  "replica-index": str(index), **({"job-role": "master"} if role == "master" else {})}  # fmt: skip
        labels = {f"training.kubeflow.org/{name}": value for name, value in labels.items()}
        told = {"PYTHONUNBUFFERED": "1", "MASTER_PORT": PORT, "MASTER_ADDR": f"{job.name}-master-0",
                "WORLD_SIZE": str(1 + self.workers), "RANK": str(index + (role == "worker"))}  # fmt: skip
        spec = {**template["spec"], "restartPolicy": "OnFailure"}
        (trainer,) = spec["containers"]
        trainer["env"] = [*trainer["env"], *({"name": name, "value": value} for name, value in told.items())]
        trainer["ports"] = [{"name": "pytorchjob-port", "containerPort": int(PORT), "protocol": "TCP"}]
        if role == "worker":
            spec["initContainers"] = [{"name": "init-pytorch", "image": trainer["image"], "command": ["true"]}]
        owner = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "name": job.name, "uid": self._uid, "controller": True,
                 "blockOwnerDeletion": True}  # fmt: skip
        metadata = {
            "name": f"{job.name}-{role}-{index}",
            "labels": {**template["metadata"]["labels"], **labels},
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [owner],
        }
        job.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def kill(self, pod: str, title: str) -> None:
        """One process of its trainer."""
        script = f'for d in /proc/[0-9]*; do [ "$(cat $d/comm)" = "{title}" ] && kill -9 ${{d#/proc/}}; done; true'
        self.job.kubectl("exec", pod, "-c", "pytorch", "--", "sh", "-c", script)


def test_a_pytorchjob(pods: MakePods, pytorchjobs: None, subtests: pytest.Subtests) -> None:
    operator = Operator(pods("mnist"), workers=2)
    for role, index in (("worker", 1), ("worker", 0), ("master", 0)):  # the operator waits for nothing in between
        operator.make(role, index)
    live_through(
        subtests,
        operator,
        it_becomes_one_world,
        a_rank_is_killed_and_begins_again_in_place,
        a_pod_is_lost_and_its_successor_has_its_rank_index,
        scaling_changes_its_workers,
        it_completes,
    )


NAMES = [f"mnist-{each}" for each in ("master-0", "worker-0", "worker-1")]


def it_becomes_one_world(operator: Operator) -> None:
    job = operator.job
    _, world = job.training(6)  # the operator had said: a world of 3
    assert members(world) == [name for name in NAMES for _ in range(2)]
    assert [rank_index(job, name) for name in NAMES] == ["0", "1", "2"]
    assert job.job()["spec"]["adopts"] == {"apiVersion": f"{GROUP}/v1", "kind": KIND, "name": "mnist"}
    job.phase("Running")


def a_rank_is_killed_and_begins_again_in_place(operator: Operator) -> None:
    job = operator.job
    restart, _ = job.training(6)
    before = job.uids()
    operator.kill("mnist-worker-0", "rank 2")
    job.training(6, after=restart)
    job.event("WorkerExited", "Rank 2 on mnist-worker-0 was killed by SIGKILL")
    assert job.uids() == before


def a_pod_is_lost_and_its_successor_has_its_rank_index(operator: Operator) -> None:
    job = operator.job
    restart, _ = job.training(6)
    job.delete_pod("mnist-worker-0")
    operator.make("worker", 0)
    _, world = job.training(6, after=restart)
    assert members(world) == [name for name in NAMES for _ in range(2)]


def scaling_changes_its_workers(operator: Operator) -> None:
    job = operator.job
    restart, _ = job.training(6)
    wanted = {"spec": {"replicaSpecs": {"worker": {"replicas": 4, "maxReplicas": 4}}}}
    job.kubectl("patch", "elasticjob", job.name, "--type=merge", "-p", json.dumps(wanted))

    def workers() -> dict[str, Document]:
        return dict(shown(PLURAL, job.name, job.namespace)["spec"]["pytorchReplicaSpecs"])

    until(lambda: workers()["Worker"]["replicas"] == 3, job.story)
    assert workers()["Master"]["replicas"] == 1
    operator.make("worker", 2)
    job.training(8, after=restart)


def it_completes(operator: Operator) -> None:
    job = operator.job
    job.end_well()
    job.phase("Succeeded")
    until(lambda: {pod["status"]["phase"] for pod in job.pods().values()} == {"Succeeded"}, job.story)


def rank_index(job: Pods, pod: str) -> object:
    return job.pods()[pod]["metadata"]["labels"].get("outrider.dev/rank-index")
