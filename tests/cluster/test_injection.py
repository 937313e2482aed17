"""Pods of other controllers: a label is enough."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import FOLDERS, Document, Pods, kubectl_json, pod_spec, until

LABEL = {"outrider.dev/inject": "true"}


@pytest.fixture
def pods(namespace: str) -> Iterator[Callable[[str], Pods]]:
    folders: list[Path] = []

    def made(name: str) -> Pods:
        folder = FOLDERS / namespace / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        folders.append(folder)
        return Pods(namespace, name, folder)

    yield made
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def template(pods: Pods, restart: str, **annotations: str) -> Document:
    notes = {f"outrider.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec = {**pod_spec(pods.folder), "restartPolicy": restart}
    return {"metadata": {"labels": {"app": pods.name, **LABEL}, "annotations": notes}, "spec": spec}


def test_a_job_of_two_pods_trains_as_one_world_and_completes(pods: Callable[[str], Pods]) -> None:
    job = pods("plain-job")
    spec = {"completions": 2, "parallelism": 2, "template": template(job, "Never")}
    job.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec})
    restart, world = job.training(2)
    assert job.job()["spec"]["adopts"] == {"apiVersion": "batch/v1", "kind": "Job", "name": job.name}
    victim = world[1][0].member
    job.execute(victim, f"kill -9 {job.pid_of(victim, 'rank 1')}")
    job.training(2, after=restart)
    job.end_well()
    until(lambda: kubectl_json("-n", job.namespace, "get", "job", job.name)["status"].get("succeeded") == 2, job.story)


def test_a_stateful_set_gives_its_ordinals_as_rank_indexes(pods: Callable[[str], Pods]) -> None:
    job = pods("ordinals")
    spec = {
        "replicas": 2,
        "serviceName": job.name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": job.name}},
        "template": template(job, "Always", nproc_per_node="2"),
    }
    job.create({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": job.name}, "spec": spec})
    restart, world = job.training(4)
    assert [steps[0].member for steps in world.values()] == [f"{job.name}-{i}" for i in (0, 0, 1, 1)]
    job.kubectl("delete", "pod", f"{job.name}-0", "--grace-period=0", "--force")
    _, new = job.training(4, after=restart)
    assert [steps[0].member for steps in new.values()] == [f"{job.name}-{i}" for i in (0, 0, 1, 1)]


def test_a_pod_without_the_label_is_left_alone(pods: Callable[[str], Pods]) -> None:
    job = pods("untouched")
    spec = {**pod_spec(job.folder, "true"), "restartPolicy": "Never"}
    job.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "untouched"}, "spec": spec})
    pod = until(lambda: job.pods().get("untouched"), "the pod")
    assert [container["name"] for container in pod["spec"]["containers"]] == ["trainer"]
    assert "shareProcessNamespace" not in pod["spec"]
