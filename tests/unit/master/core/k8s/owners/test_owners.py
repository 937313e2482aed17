"""The job of a pod, its place in the job, and the job's size."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.kube import yaml as kube_yaml
from outrider.master.core.k8s.elasticjob.adopted import adopting
from outrider.master.core.k8s.elasticjob.cross_field import validate
from outrider.master.core.k8s.elasticjob.spec import spec_of
from outrider.master.core.k8s.owners.owner import Size, place_of, size_of, uncounted
from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.values.names import Document

PODS = Path(__file__).parents[1] / "data/pods"
INJECT = {"outrider.dev/inject": "true"}


def recorded(name: str) -> Document:
    with (PODS / f"{name}.yaml").open() as file:
        pod: Document = kube_yaml.read(file)[0]
    return pod


def pod(owner: tuple[str, str] | None = None, labels: Document | None = None, **metadata: Any) -> Document:
    if owner is not None:
        reference = {"kind": owner[0], "name": owner[1], "uid": "owner-uid", "controller": True}
        metadata["ownerReferences"] = [{"kind": "Queue", "name": "not-this"}, reference]
    return {"metadata": {"name": "gpt-7", "labels": {**INJECT, **(labels or {})}, **metadata}}


def noted(**annotations: str) -> Document:
    return pod(annotations={f"outrider.dev/{name.replace('_', '-')}": value for name, value in annotations.items()})


def found(of: Document, *owners: Document) -> Place:
    place = place_of(of, "research", {}, owners)
    assert place is not None
    return place


# -- who asks -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("own", "namespace", "asks"),
    [
        ({}, {}, False),
        ({"outrider.dev/inject": "true"}, {}, True),
        ({"outrider.dev/inject": "enabled"}, {}, False),
        ({}, {"outrider.dev/inject": "enabled"}, True),
        ({}, {"outrider.dev/inject": "true"}, False),
        ({"outrider.dev/inject": "false"}, {"outrider.dev/inject": "enabled"}, False),
        ({"outrider.dev/job": "gpt"}, {}, False),
    ],
)
def test_a_pod_asks_by_its_label_or_its_namespaces_and_by_nothing_else(
    own: Document, namespace: Document, asks: bool
) -> None:
    assert (place_of({"metadata": {"name": "p", "labels": own}}, "research", namespace) is not None) is asks


# -- recorded pods ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("plain", Place("plain", "research", "worker")),
        ("job", Place("gpt", "research", "worker")),
        ("indexed_job", Place("gpt", "research", "worker", rank_index=2, script="train.py",
                              pythonpath="/opt/megatron", max_restarts=0)),
        ("indexed_job_before_1_28", Place("gpt", "research", "worker", rank_index=2)),
        ("stateful_set", Place("bert", "research", "worker", rank_index=1, nproc=4)),
        ("deployment", Place("llama", "research", "worker")),
        ("jobset", Place("llm", "research", "worker")),
        ("jobset_of_two", Place("llm", "research", "worker")),
        ("pytorchjob", Place("mnist", "research", "worker", rank_index=2, of_operator=True)),
    ],
)  # fmt: skip
def test_a_pod_of_another_controller(name: str, place: Place) -> None:
    assert found(recorded(name)) == place


def test_an_elasticjobs_own_pod_says_all_by_its_labels() -> None:
    own = {"job": "mnist", "role": "ps", "member": "ps-4", "id": "4", "rank-index": "1", "relaunches": "0"}
    labels = {f"outrider.dev/{label}": value for label, value in own.items()}
    of_job = pod(("ElasticJob", "mnist"), labels, annotations={"outrider.dev/job": "another"})
    assert found(of_job) == Place("mnist", "research", "ps", "ps-4", 1)
    del labels["outrider.dev/rank-index"]
    assert found(pod(("ElasticJob", "mnist"), labels)).rank_index is None


# -- the job ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["ReplicaSet", "Deployment", "DaemonSet", "ReplicationController"])
def test_pods_of_an_owner_that_is_not_counted_say_how_many_they_are_or_are_no_members(kind: str) -> None:
    lone = pod((kind, "web"))
    assert uncounted(lone).startswith(
        f"metadata.annotations[outrider.dev/max]: Required value: the number of pods of a {kind}"
    )
    assert uncounted({"metadata": {**lone["metadata"], "annotations": {"outrider.dev/max": "2"}}}) == ""


@pytest.mark.parametrize("kind", ["Job", "StatefulSet", "ElasticJob", "Rollout"])
def test_pods_of_other_owners_may_be_members_as_they_are(kind: str) -> None:
    assert uncounted(pod((kind, "web"))) == ""


DEPLOYMENT = {"kind": "Deployment", "metadata": {"name": "web", "uid": "d"}}
REPLICA_SET = {
    "kind": "ReplicaSet",
    "metadata": {
        "name": "web-abc",
        "uid": "owner-uid",
        "ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "d", "controller": True}],
    },
}


@pytest.mark.parametrize(
    ("of", "owners", "job"),
    [
        (pod(), [], "gpt-7"),
        (pod(name=None, generateName="run-"), [], "run"),
        (pod(("RayCluster", "ray")), [], "ray"),
        (pod(("ReplicaSet", "web-abc"), {"pod-template-hash": "abc"}), [], "web"),
        (pod(("ReplicaSet", "web-abc"), {"pod-template-hash": "xyz"}), [], "web-abc"),
        (pod(("ReplicaSet", "web-abc")), [REPLICA_SET], "web"),
        (pod(("ReplicaSet", "web-abc")), [DEPLOYMENT, REPLICA_SET], "web"),
        (pod(("ReplicaSet", "web-abc")), [{**REPLICA_SET, "metadata": {"name": "web-abc", "uid": "older"}}], "web-abc"),
        (pod(("Job", "nightly-123"), {"job-name": "nightly-123"}), [], "nightly-123"),
        (pod(("Job", "a-0"), {"job-name": "a-0", "jobset.sigs.k8s.io/jobset-name": "a"}), [], "a"),
        (pod(("Job", "a-0"), {"job-name": "a-0"}, annotations={"outrider.dev/job": "mine"}), [], "mine"),
    ],
)
def test_which_job_a_pod_is_of(of: Document, owners: list[Document], job: str) -> None:
    assert found(of, *owners).job == job


def test_owners_that_own_each_other_do_not_hold_it_up() -> None:
    def owned(name: str, by: str) -> Document:
        reference = {"kind": "X", "name": by, "controller": True}
        return {"kind": "X", "metadata": {"name": name, "ownerReferences": [reference]}}

    assert found(pod(("X", "a")), owned("a", "b"), owned("b", "a")).job in ("a", "b")


# -- rank index and role ------------------------------------------------------------------------------------------
def test_what_a_label_of_ours_says_goes_before_what_a_controller_says() -> None:
    labels = {"outrider.dev/rank-index": "1", "batch.kubernetes.io/job-completion-index": "4"}
    assert found(pod(labels=labels)).rank_index == 1


def test_a_role_is_lower_case() -> None:
    assert found(pod(labels={"training.kubeflow.org/replica-type": "Master"})).role == "master"
    assert (
        found(pod(labels={"training.kubeflow.org/replica-type": "Master", "outrider.dev/role": "Chief"})).role
        == "chief"
    )


# -- annotations --------------------------------------------------------------------------------------------------
def test_what_annotations_ask_for() -> None:
    place = found(noted(nproc_per_node="8", script="train.py", pythonpath="/a:/b", per_rank="true", container="main",
                        max_restarts="3", min="1", max="4", spares="0", node_check="true"))  # fmt: skip
    assert place == Place("gpt-7", "research", "worker", "", None, 8, "train.py", "/a:/b", True, "main", max_restarts=3)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (noted(min="two"),
         'metadata.annotations[outrider.dev/min]: Invalid value: "two": must be an integer between 1 and 32768'),
        (noted(min="0"),
         'metadata.annotations[outrider.dev/min]: Invalid value: "0": must be an integer between 1 and 32768'),
        (noted(max="1.5"),
         'metadata.annotations[outrider.dev/max]: Invalid value: "1.5": must be an integer between 1 and 32768'),
        (noted(min="5", max="4"),
         "metadata.annotations[outrider.dev/min]: Invalid value: 5: must be at most 4, the value of outrider.dev/max"),
        (noted(nproc_per_node="auto"),
         'metadata.annotations[outrider.dev/nproc-per-node]: Invalid value: "auto": must be an integer between 1'),
        (noted(nproc_per_node=""),
         'metadata.annotations[outrider.dev/nproc-per-node]: Invalid value: "": must be an integer between 1 and 1024'),
        (noted(spares="-1"),
         'metadata.annotations[outrider.dev/spares]: Invalid value: "-1": must be an integer between 0 and 32768'),
        (noted(max_restarts="٣"),
         'metadata.annotations[outrider.dev/max-restarts]: Invalid value: "٣": must be an integer between 0 and'),
        (noted(node_check="maybe"),
         'metadata.annotations[outrider.dev/node-check]: Unsupported value: "maybe": supported values: "true",'),
        (noted(elastic_data="2"),
         'metadata.annotations[outrider.dev/elastic-data]: Unsupported value: "2": supported values: "true", "false"'),
        (noted(atomic_save="please"),
         'metadata.annotations[outrider.dev/atomic-save]: Unsupported value: "please": supported values: "true",'),
        (noted(save_signal="SIGSTOP"),
         'metadata.annotations[outrider.dev/save-signal]: Unsupported value: "SIGSTOP": supported values: "SIGUSR1", '),
        (noted(per_rank="2"),
         'metadata.annotations[outrider.dev/per-rank]: Unsupported value: "2": supported values: "true", "false"'),
        (noted(job="My Job"),
         'metadata.annotations[outrider.dev/job]: Invalid value: "My Job": must have up to 63 lower-case letters'),
        (pod(("Foo", "x" * 64)),
         'metadata.ownerReferences[Foo].name: Invalid value: "xxx'),
        (pod(name="Gpt"),
         'metadata.name: Invalid value: "Gpt": must have up to 63 lower-case letters'),
        (pod(labels={"job-name": "a_b"}),
         'metadata.labels[job-name]: Invalid value: "a_b": must have'),
        (pod(labels={"outrider.dev/rank-index": "first"}),
         'metadata.labels[outrider.dev/rank-index]: Invalid value: "first": must be an integer'),
    ],
)  # fmt: skip
def test_an_invalid_annotation_label_or_name_is_an_error(of: Document, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        found(of)


# -- the size -----------------------------------------------------------------------------------------------------
def owner(kind: str, **spec: Any) -> Document:
    return {"kind": kind, "metadata": {"name": "gpt"}, "spec": spec}


def replicas(**roles: int | None) -> Document:
    return {role: {"replicas": count} for role, count in roles.items()}


def replicated(replicas: int, **spec: Any) -> Document:
    return {"name": "w", "replicas": replicas, "template": {"spec": spec}}


@pytest.mark.parametrize(
    ("of", "size"),
    [
        (owner("Job"), Size(1, 1, 1)),
        (owner("Job", completions=4), Size(1, 1, 1)),
        (owner("Job", parallelism=4), Size(4, 4, 4)),
        (owner("Job", parallelism=4, completions=3), Size(3, 3, 3)),
        (owner("StatefulSet", replicas=4), Size(4, 4, 4)),
        (owner("Deployment"), Size(1, 1, 1)),
        (owner("PyTorchJob", pytorchReplicaSpecs=replicas(Master=1, Worker=3)), Size(4, 4, 4)),
        (owner("PyTorchJob", pytorchReplicaSpecs=replicas(Worker=None), nprocPerNode="8"), Size(1, 1, 1, 8)),
        (owner("PyTorchJob", pytorchReplicaSpecs=replicas(Worker=2), nprocPerNode="auto"), Size(2, 2, 2)),
        (owner("PyTorchJob", pytorchReplicaSpecs=replicas(Worker=3), elasticPolicy={
            "minReplicas": 2, "maxReplicas": 6, "nProcPerNode": 4}), Size(2, 6, 3, 4)),
        (owner("PyTorchJob", pytorchReplicaSpecs=replicas(Master=1, Worker=3),
               elasticPolicy={"minReplicas": 9, "maxReplicas": 1}), Size(4, 4, 4)),
        (owner("JobSet", replicatedJobs=[replicated(2, parallelism=4, completions=4), replicated(1)]), Size(9, 9, 9)),
        (owner("ElasticJob", nprocPerNode=2, replicaSpecs={"Worker": {"replicas": 3, "minReplicas": 2}}),
         Size(2, 3, 3, 2)),
        (owner("Pod"), Size(1, 1, 1)),
        (owner("RayCluster"), Size(1, 1, 1)),
    ],
)  # fmt: skip
def test_how_many_an_owner_asks_for(of: Document, size: Size) -> None:
    assert size_of(of) == size


def test_annotations_of_a_pod_or_of_the_template_go_before() -> None:
    template = {"metadata": {"annotations": {"outrider.dev/min": "2", "outrider.dev/nproc-per-node": "8"}}, "spec": {}}
    assert size_of(owner("StatefulSet", replicas=4, template=template)) == Size(2, 4, 4, 8)
    assert size_of(owner("StatefulSet", replicas=4, template=template), noted(max="6")) == Size(4, 6, 4)
    assert size_of(owner("Job", parallelism=4), noted(min="1", max="4")) == Size(1, 4, 4)


def test_plain_pods_of_one_job_are_counted_by_annotation() -> None:
    of_max, of_min = noted(max="4", min="2"), noted(min="2")
    assert size_of({"kind": "Pod", **of_max}, of_max) == Size(2, 4, 4)
    assert size_of({"kind": "Pod", **of_min}) == Size(2, 2, 2)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (noted(min="5"), "must be between 1 and 4, the number of pods of StatefulSet gpt"),
        (noted(max="3"), "must be at least 4, the number of pods of StatefulSet gpt"),
        (noted(min="few"), "must be an integer between 1 and 32768"),
    ],
)  # fmt: skip
def test_a_size_that_cannot_be_had_is_said(of: Document, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        size_of(owner("StatefulSet", replicas=4), of)


@pytest.mark.parametrize(
    ("of", "first"),
    [
        (owner("StatefulSet", replicas=3), noted(min="2", max="5")),
        (owner("PyTorchJob", pytorchReplicaSpecs=replicas(Master=1, Worker=3), elasticPolicy={
            "minReplicas": 1, "maxReplicas": 6}), noted()),
        (owner("PyTorchJob", pytorchReplicaSpecs=replicas(Worker=3), elasticPolicy={"minReplicas": 1}), noted(min="2")),
    ],
    ids=["annotations", "elasticPolicy", "both"],
)  # fmt: skip
def test_a_size_is_the_one_of_the_job_that_adopts_the_owner(of: Document, first: Document) -> None:
    of |= {"apiVersion": "apps/v1", "metadata": {"name": "gpt", "uid": "u"}}
    size = size_of(of, first)
    job = adopting(of, size.replicas, first, size.min, size.max)
    spec = spec_of(job)
    assert validate(job) == []
    assert (spec.min_members, spec.max_members, spec.replicas) == (size.min, size.max, size.replicas)


def test_the_processes_of_a_member_are_those_of_the_annotation() -> None:
    first = noted(nproc_per_node="4")
    of = {**owner("StatefulSet", replicas=3), "apiVersion": "apps/v1", "metadata": {"name": "gpt", "uid": "u"}}
    assert spec_of(adopting(of, 3, first)).nproc == size_of(of, first).nproc == 4
