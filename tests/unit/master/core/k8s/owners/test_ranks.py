"""The rank index of other controllers' pods: one count through a whole job, whatever it is made of."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.kube import yaml as kube_yaml
from outrider.master.core.k8s.owners.owner import needs_owners, place_of, size_of
from outrider.master.core.k8s.values.names import Document

FOLDER = Path(__file__).parents[1] / "data"
INJECT = {"outrider.dev/inject": "true"}
JOBSET = "jobset.sigs.k8s.io"


def recorded(path: str) -> list[Document]:
    with (FOLDER / f"{path}.yaml").open() as file:
        return kube_yaml.read(file)


def pod(owner: tuple[str, str], labels: Document, **metadata: Any) -> Document:
    reference = {"kind": owner[0], "name": owner[1], "uid": "owner-uid", "controller": True}
    metadata = {"name": "gpt-7", "ownerReferences": [reference], **metadata}
    return {"metadata": {"labels": {**INJECT, **labels}, **metadata}}


def rank(of: Document, *owners: Document) -> int | None:
    place = place_of(of, "research", {}, owners)
    assert place is not None
    return place.rank_index


# -- Indexed Jobs, StatefulSets -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["indexed_job", "indexed_job_before_1_28"])
def test_a_completion_index_is_read_where_this_version_of_kubernetes_writes_it(name: str) -> None:
    (of,) = recorded(f"pods/{name}")
    assert rank(of) == 2
    assert not needs_owners(of)


def test_ordinals_that_begin_elsewhere_are_counted_from_0() -> None:
    of = pod(("StatefulSet", "gpt"), {})
    owner = {"kind": "StatefulSet", "metadata": {"name": "gpt", "uid": "owner-uid"}, "spec": {"ordinals": {"start": 5}}}
    assert needs_owners(of)
    assert rank(of) == 7
    assert rank(of, owner) == 2
    assert rank(of, {**owner, "metadata": {"name": "gpt", "uid": "of-an-older-one"}}) == 7


# -- JobSet -------------------------------------------------------------------------------------------------------
def in_jobset(job: str, index: int, completion: int | None, **labels: str) -> Document:
    told = {
        f"{JOBSET}/jobset-name": "llm",
        f"{JOBSET}/replicatedjob-name": job,
        f"{JOBSET}/job-index": str(index),
        f"{JOBSET}/restart-attempt": "0",
        **{f"{JOBSET}/{name.replace('_', '-')}": value for name, value in labels.items()},
    }
    if completion is not None:
        told["batch.kubernetes.io/job-completion-index"] = str(completion)
    return pod(("Job", f"llm-{job}-{index}"), told)


def job_of(name: str, **spec: Any) -> Document:
    above = {"kind": "JobSet", "name": "llm", "uid": "jobset-uid", "controller": True}
    return {"kind": "Job", "metadata": {"name": name, "uid": "owner-uid", "ownerReferences": [above]}, "spec": spec}


def jobset(*jobs: tuple[str, int, int], **labels: Document) -> Document:
    """Name, Jobs and pods of each replicated Job; `labels` of a Job's pods, where they are not those of all."""
    made = [
        {
            "name": name,
            "replicas": replicas,
            "template": {
                "spec": {
                    "parallelism": pods,
                    "completions": pods,
                    "template": {"metadata": {"labels": labels.get(name, INJECT)}},
                }
            },
        }
        for name, replicas, pods in jobs
    ]
    return {"kind": "JobSet", "metadata": {"name": "llm", "uid": "jobset-uid"}, "spec": {"replicatedJobs": made}}


def test_a_recorded_pod_stands_behind_all_jobs_before_its_own() -> None:
    (of,), owners = recorded("pods/jobset_of_two"), recorded("owners/jobset_of_two")
    assert needs_owners(of)
    assert rank(of, *owners) == 2 + 2 + 1
    assert size_of(owners[1]).replicas == 8


def test_a_whole_set_that_is_restarted_has_its_rank_indexes_again_and_is_the_same_job() -> None:
    (of,), (job, its_set) = recorded("pods/jobset_of_two"), recorded("owners/jobset_of_two")
    anew, job = deepcopy(of), deepcopy(job)
    anew["metadata"]["name"] = "llm-workers-1-1-p4x2z"
    for said in (anew["metadata"]["labels"], anew["metadata"]["annotations"]):
        said[f"{JOBSET}/restart-attempt"] = "1"
    anew["metadata"]["ownerReferences"][0]["uid"] = job["metadata"]["uid"] = "of-the-second-attempt"
    places = [place_of(each, "research", {}, [job_, its_set]) for each, job_ in
              ((of, recorded("owners/jobset_of_two")[0]), (anew, job))]  # fmt: skip
    assert places[0] == places[1]
    assert places[0] is not None
    assert (places[0].job, places[0].rank_index) == ("llm", 5)


SHAPES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=4)


@given(SHAPES)
def test_every_pod_of_a_jobset_has_a_place_of_its_own_and_none_is_empty(shapes: list[tuple[int, int]]) -> None:
    jobs = [(f"j{number}", replicas, pods) for number, (replicas, pods) in enumerate(shapes)]
    of_set = jobset(*jobs)
    found = [
        rank(in_jobset(name, index, completion), job_of(f"llm-{name}-{index}"), of_set)
        for name, replicas, pods in jobs
        for index in range(replicas)
        for completion in range(pods)
    ]
    assert found == list(range(size_of(of_set).replicas))


def test_a_driver_that_does_not_ask_is_not_counted() -> None:
    of_set = jobset(("driver", 1, 1), ("workers", 2, 2), driver={})
    assert size_of(of_set).replicas == 4
    assert rank(in_jobset("workers", 1, 0), job_of("llm-workers-1"), of_set) == 2
    by_namespace = jobset(("driver", 1, 1), ("workers", 2, 2), driver={"outrider.dev/inject": "false"}, workers={})
    assert size_of(by_namespace).replicas == 4


ONE_OF_THREE = {"replicatedjob_replicas": "3", "global_replicas": "3"}
ONE_OF_MORE = {"replicatedjob_replicas": "3", "global_replicas": "5"}


@pytest.mark.parametrize(
    ("of", "owners", "index"),
    [
        (in_jobset("w", 2, 1, **ONE_OF_THREE), [], None),
        (in_jobset("w", 2, 1, **ONE_OF_THREE), [job_of("llm-w-2", parallelism=4, completions=4)], 9),
        (in_jobset("w", 2, 1, **ONE_OF_MORE), [job_of("llm-w-2", parallelism=4, completions=4)], None),
        (in_jobset("w", 2, None, **ONE_OF_THREE), [job_of("llm-w-2")], 2),
        (in_jobset("w", 2, None, **ONE_OF_THREE), [job_of("llm-w-2", parallelism=2)], None),
        (in_jobset("w", 0, 3, replicatedjob_replicas="1", global_replicas="1"), [], 3),
        (in_jobset("w", 0, 3, replicatedjob_replicas="1"), [], 3),
        (in_jobset("w", 0, None, global_replicas="1"), [], 0),
        (in_jobset("w", 0, 3, replicatedjob_replicas="1", global_replicas="2"), [], None),
        (in_jobset("gone", 0, 0), [job_of("llm-gone-0"), jobset(("w", 1, 1))], None),
    ],
)
def test_without_its_jobset_a_pod_has_the_place_that_nothing_else_can_have_or_none(
    of: Document, owners: list[Document], index: int | None
) -> None:
    assert rank(of, *owners) == index


# -- the training operator ----------------------------------------------------------------------------------------
def replica(role: str, index: object, *env: tuple[str, str]) -> Document:
    labels = {"training.kubeflow.org/job-name": "gpt", "training.kubeflow.org/replica-type": role,
              "training.kubeflow.org/replica-index": str(index)}  # fmt: skip
    made = pod(("PyTorchJob", "gpt"), labels)
    variables = [{"name": name, "value": value} for name, value in env]
    return {**made, "spec": {"containers": [{"name": "pytorch", "env": variables}]}}


def pytorchjob(**roles: int) -> Document:
    specs = {role: {"replicas": count, "template": {"metadata": {"labels": INJECT}}} for role, count in roles.items()}
    return {"kind": "PyTorchJob", "metadata": {"name": "gpt", "uid": "owner-uid"}, "spec": {
        "pytorchReplicaSpecs": specs}}  # fmt: skip


@pytest.mark.parametrize(
    ("of", "owners", "index"),
    [
        (replica("master", 0), [pytorchjob(Master=1, Worker=3)], 0),
        (replica("worker", 2), [pytorchjob(Worker=3, Master=1)], 3),
        (replica("worker", 2), [pytorchjob(Worker=3)], 2),
        (replica("worker", 2, ("RANK", "9")), [pytorchjob(Worker=3)], 2),
        (replica("master", 0, ("RANK", "0")), [], 0),
        (replica("worker", 2, ("MASTER_ADDR", "gpt-master-0"), ("RANK", "3")), [], 3),
        (replica("worker", 2, ("RANK", "0"), ("RANK", "3")), [], 3),
        (replica("worker", 2, ("RANK", "17"), ("PET_NODE_RANK", "3")), [], 3),
        (replica("worker", 2, ("RANK", "$(MINE)")), [], 2),
        (replica("worker", 2), [], 2),
        (replica("worker", "¹"), [], None),
        (replica("worker", "none", ("RANK", "1")), [], None),
    ],
)
def test_a_worker_stands_behind_the_master_where_there_is_one(
    of: Document, owners: list[Document], index: int | None
) -> None:
    assert rank(of, *owners) == index


def test_a_master_that_does_not_ask_is_not_counted() -> None:
    owner = pytorchjob(Master=1, Worker=2)
    owner["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = {}
    assert size_of(owner).replicas == 2
    assert rank(replica("worker", 1), owner) == 1


# -- who is asked about -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("of", "asks"),
    [
        (in_jobset("w", 0, 0), True),
        (replica("worker", 0), True),
        (pod(("Job", "gpt"), {"job-name": "gpt"}), False),
        (pod(("ReplicaSet", "gpt"), {}), False),
        (pod(("StatefulSet", "gpt"), {"outrider.dev/rank-index": "0"}), False),
        (pod(("StatefulSet", "gpt"), {}, ownerReferences=None), False),
        (pod(("ElasticJob", "gpt"), {"outrider.dev/member": "worker-1"}), False),
        ({}, False),
    ],
)
def test_owners_are_read_only_where_they_say_what_the_pod_does_not(of: Document, asks: bool) -> None:
    assert needs_owners(of) is asks
