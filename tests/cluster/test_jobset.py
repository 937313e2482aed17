"""A JobSet of two replicated Jobs: one world over all of its Jobs, also after the whole set was restarted.

The Jobs and their pods are real; what the JobSet's controller does, this test does: it makes the Jobs, with the labels
that it gives them, and makes them anew for the next attempt.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Pods, pod_spec, until
from tests.cluster.conftest import MakePods
from tests.cluster.definitions import defined
from tests.cluster.reading import listed, shown
from tests.local.training import World, members

GROUP, VERSION, KIND, LABEL = "jobset.x-k8s.io", "v1alpha2", "JobSet", "jobset.sigs.k8s.io"
JOBS = (("leader", 1), ("workers", 2))


@pytest.fixture
def definition(turn: None) -> Iterator[None]:
    with defined(GROUP, VERSION, KIND):
        yield


class Controller:
    """Of one JobSet."""

    def __init__(self, job: Pods) -> None:
        self.job = job
        template = {"metadata": {"labels": {"outrider.dev/inject": "true"}}, "spec": pod_spec(job.folder)}
        template["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 8}
        self._spec = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template}
        replicated = [{"name": name, "replicas": count, "template": {"spec": self._spec}} for name, count in JOBS]
        metadata = {"name": job.name, "namespace": job.namespace}
        document = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata}
        job.create({**document, "spec": {"replicatedJobs": replicated}})
        self._uid = shown("jobsets", job.name, job.namespace)["metadata"]["uid"]

    def make(self, attempt: int) -> None:
        number = 0
        for name, count in JOBS:
            for index in range(count):
                said = {"jobset-name": self.job.name, "replicatedjob-name": name, "replicatedjob-replicas": count,
                        "global-replicas": sum(count for _, count in JOBS), "job-index": index,
                        "job-global-index": number, "restart-attempt": attempt}  # fmt: skip
                self._make(f"{self.job.name}-{name}-{index}", {f"{LABEL}/{k}": str(v) for k, v in said.items()})
                number += 1

    def _make(self, name: str, labels: dict[str, str]) -> None:
        owner = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "name": self.job.name, "uid": self._uid,
                 "controller": True, "blockOwnerDeletion": True}  # fmt: skip
        metadata = {"name": name, "labels": labels, "annotations": labels, "ownerReferences": [owner]}
        template = self._spec["template"]
        of_pod = {"labels": {**template["metadata"]["labels"], **labels}, "annotations": labels}  # type: ignore[index]
        spec = {**self._spec, "template": {**template, "metadata": of_pod}}  # type: ignore[dict-item]
        self.job.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})

    def delete_all(self) -> None:
        """Its Jobs are gone when their pods are."""
        self.job.kubectl("delete", "jobs", "--all", "--cascade=foreground")


def by_rank(world: World) -> list[str]:
    """The Job of each rank; a pod's name is its Job's and five letters."""
    return [name.rpartition("-")[0] for name in members(world)]


def test_a_jobset_of_two_replicated_jobs_is_one_world_again_after_the_whole_set_was_restarted(
    pods: MakePods, definition: None
) -> None:
    job = pods("llm")
    controller = Controller(job)
    controller.make(attempt=0)
    restart, world = job.training(3)
    assert by_rank(world) == ["llm-leader-0", "llm-workers-0", "llm-workers-1"]
    assert job.job()["spec"]["adopts"] == {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "name": "llm"}

    controller.delete_all()
    controller.make(attempt=1)
    _, world = job.training(3, after=restart)
    assert by_rank(world) == ["llm-leader-0", "llm-workers-0", "llm-workers-1"]

    job.end_well()
    job.phase("Succeeded")
    until(lambda: [done(each) for each in listed("jobs", job.namespace)] == [1] * 3,
          job.story)  # fmt: skip


def done(job: dict[str, dict[str, int]]) -> int | None:
    return job["status"].get("succeeded")
