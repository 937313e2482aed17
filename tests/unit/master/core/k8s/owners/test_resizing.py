"""Scaling the owner of adopted pods."""

from __future__ import annotations

import pytest

from outrider.master.core.k8s.owners import resize as owners_resize
from outrider.master.core.k8s.owners.resize import CannotResize
from outrider.master.core.k8s.values.limits import Limits
from outrider.master.core.k8s.values.names import Document


def owner(kind: str, **spec: object) -> Document:
    return {"kind": kind, "metadata": {"name": "train"}, "spec": spec}


def adopting(kind: str, replicas: int, least: int = 1, most: int = 8) -> Document:
    worker = {"replicas": replicas, "minReplicas": least, "maxReplicas": most}
    return {
        "metadata": {"name": "train"},
        "spec": {"adopts": {"apiVersion": "x/v1", "kind": kind, "name": "train"}, "replicaSpecs": {"worker": worker}},
    }


def pytorch(master: int, workers: int) -> Document:
    return owner("PyTorchJob", pytorchReplicaSpecs={"Master": {"replicas": master}, "Worker": {"replicas": workers}})


@pytest.mark.parametrize(
    ("given", "patch"),
    [
        (owner("StatefulSet", replicas=2), {"replicas": 5}),
        (owner("Job", parallelism=2), {"parallelism": 5}),
        (owner("Job", parallelism=2, completions=2, completionMode="Indexed"), {"parallelism": 5, "completions": 5}),
        (pytorch(1, 2), {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}),
        (pytorch(0, 2), {"pytorchReplicaSpecs": {"Worker": {"replicas": 5}}}),
    ],
)
def test_five_pods_are_asked_for_where_the_kind_says_how_many(given: Document, patch: Document) -> None:
    assert owners_resize.patch_of(given, 5) == {"spec": patch}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (owner("Job", parallelism=2, completions=2), "has 2 completions, which cannot be changed"),
        (
            owner("Job", parallelism=2, completions=9, completionMode="Indexed"),
            "whose completions equal its parallelism",
        ),
        (owner("JobSet"), "JobSet train cannot be scaled while it runs"),
        (owner("Pod"), "Pod train cannot be scaled while it runs"),
        (pytorch(6, 2), "PyTorchJob train has 6 pods of other roles and needs at least one worker"),
        (owner("MPIJob", mpiReplicaSpecs={"Launcher": {"replicas": 1}}), "has no workers"),
    ],
)
def test_what_cannot_be_resized_says_why(given: Document, why: str) -> None:
    with pytest.raises(CannotResize, match=why):
        owners_resize.patch_of(given, 5)


def test_the_size_is_read_where_it_is_written() -> None:
    for given in (owner("StatefulSet", replicas=3), owner("Job", parallelism=3, completions=9), pytorch(1, 2)):
        assert owners_resize.replicas_of(given) == 3


def test_an_elastic_job_that_follows_its_owner_moves_its_bounds_only_where_it_must() -> None:
    def worker(replicas: int) -> Document:
        patch: Document = owners_resize.following(adopting("StatefulSet", 3, 2, 4), replicas)
        return dict(patch["spec"]["replicaSpecs"]["worker"])

    assert worker(4) == {"replicas": 4, "minReplicas": 2, "maxReplicas": 4}
    assert worker(6) == {"replicas": 6, "minReplicas": 2, "maxReplicas": 6}
    assert worker(1) == {"replicas": 1, "minReplicas": 1, "maxReplicas": 4}


@pytest.mark.parametrize("kind", ["Pod", "JobSet"])
def test_a_size_that_cannot_be_had_is_refused_with_its_field(kind: str) -> None:
    said = owners_resize.refusal(adopting(kind, 3), None, 2)
    assert said.startswith(f"spec.replicaSpecs.worker.replicas: Forbidden: {kind} train cannot be scaled")


def test_a_size_that_can_be_had_is_not_refused() -> None:
    stuck = owner("Job", parallelism=2, completions=2)
    assert owners_resize.refusal(adopting("Job", 3), stuck, 2)
    assert not owners_resize.refusal(adopting("Job", 2), stuck, 2), "it is the one that it runs with"
    assert not owners_resize.refusal(adopting("Job", 2), stuck, 3), "its owner has it already"
    assert not owners_resize.refusal(adopting("StatefulSet", 3), None, 2)
    assert not owners_resize.refusal(adopting("StatefulSet", 3), owner("StatefulSet", replicas=2), 2)
    assert not owners_resize.refusal({"metadata": {"name": "own"}, "spec": {"replicaSpecs": {}}}, None, 2)


def test_only_the_very_owner_of_an_elastic_job_is_resized() -> None:
    job, theirs = adopting("StatefulSet", 3), owner("StatefulSet", replicas=3)
    job["metadata"]["ownerReferences"], theirs["metadata"]["uid"] = [{"uid": "its"}], "its"
    assert owners_resize.owning_uid(job, theirs) == "its"
    theirs["metadata"]["uid"] = "another"
    with pytest.raises(CannotResize, match=r"StatefulSet train \(uid another\) does not own this ElasticJob"):
        owners_resize.owning_uid(job, theirs)


def test_an_owner_is_not_followed_beyond_what_an_installation_allows() -> None:
    job = adopting("StatefulSet", 3)
    owners_resize.check(job, 8, Limits(members=8))
    with pytest.raises(
        CannotResize, match="StatefulSet train has 9 replicas, but a job in this installation may have at most 8"
    ):
        owners_resize.check(job, 9, Limits(members=8))
