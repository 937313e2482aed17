"""A PyTorchJob's document under our apiVersion and kind: what its fields mean, and where they contradict ours."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from outrider.master.core.actions import CreatePod
from outrider.master.core.k8s.elasticjob.pytorch_objections import remarks
from outrider.master.core.k8s.elasticjob.spec import resized, spec_of, with_defaults
from outrider.master.core.k8s.elasticjob.status import status_of
from outrider.master.core.k8s.elasticjob.validation import problems
from outrider.master.core.k8s.pods import build as pods_build
from outrider.master.core.k8s.pods import disruption
from outrider.master.core.k8s.pods.addresses import services_of
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.pytorch_fields import in_our_words
from outrider.master.core.spec import MASTER
from outrider.wire.ids import NO_GENERATION, MemberId, RankIndex, Role
from tests.unit.master.core.k8s.documents import job, template, worker

POLICY = {"rdzvBackend": "etcd", "rdzvEndpoint": "etcd:2379", "minReplicas": 1, "maxReplicas": 3, "nProcPerNode": 2}


def resnet(**spec: Any) -> Document:
    """As KubeDL's tutorial has it: args only, a master and a worker, an etcd."""
    container = {"name": "pytorch", "image": "imagenet:1.1", "args": ["/workspace/main.py", "--epochs=20"]}
    of_each = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    document = job(name="resnet", enableElastic=True, elasticPolicy=deepcopy(POLICY), **spec)
    del document["spec"]["replicaSpecs"]
    document["spec"]["pytorchReplicaSpecs"] = {"Master": deepcopy(of_each), "Worker": deepcopy(of_each)}
    return document


def policy(**fields: Any) -> Document:
    return job({"worker": worker(replicas=2)}, elasticPolicy=fields)


def test_a_pytorchjobs_document_is_a_job_of_ours() -> None:
    stored = with_defaults(resnet())
    assert problems(resnet()) == problems(stored) == []
    assert set(stored["spec"]["replicaSpecs"]) == {"master", "worker"}
    assert "pytorchReplicaSpecs" not in stored["spec"]
    assert stored["spec"]["elasticPolicy"] == POLICY, "it is stored as it was written"
    for document in (resnet(), stored, in_our_words(stored)):
        spec = spec_of(in_our_words(document))
        assert (spec.min_members, spec.max_members, spec.replicas) == (2, 4, 2), "its sizes are of workers"
        assert (spec.has_master, spec.nproc, spec.scaling) == (True, 2, "throughput")


def test_an_apply_in_their_words_says_what_is_wanted_now() -> None:
    stored = with_defaults(resnet())
    applied = {**stored, "spec": {**stored["spec"], "pytorchReplicaSpecs": resnet()["spec"]["pytorchReplicaSpecs"]}}
    applied["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 3
    again = with_defaults(applied, stored)
    assert again["spec"]["replicaSpecs"]["worker"]["replicas"] == 3
    assert "pytorchReplicaSpecs" not in again["spec"]
    both = {**resnet()["spec"], "replicaSpecs": {"worker": worker()}}
    assert problems(with_defaults(job() | {"spec": both})) == [
        "spec.pytorchReplicaSpecs: Forbidden: has the same meaning as spec.replicaSpecs; remove one of the two"
    ]


def test_a_rendezvous_is_passed_over_with_a_sentence() -> None:
    assert spec_of(policy(rdzvBackend="etcd", rdzvEndpoint="etcd:2379")).remarks == (
        "spec.elasticPolicy.rdzvBackend, rdzvEndpoint: ignored: the master gives the ranks their rendezvous address, "
        "so no etcd is needed.",
    )
    assert remarks(policy(metrics=[])) == (
        "spec.elasticPolicy.metrics: ignored: with spec.scaling.policy: throughput a job finds its own size.",
    )  # fmt: skip
    assert remarks(policy(restartPolicy="x", standby=1)) == (
        "spec.elasticPolicy.restartPolicy, standby: ignored: an ElasticJob has no such field.",
    )
    assert spec_of(job()).remarks == ()


def test_a_policy_without_roles_is_refused_for_these_alone() -> None:
    (said,) = problems({**job(), "spec": {"elasticPolicy": {"minReplicas": 1}}})
    assert said.startswith("spec.replicaSpecs: Required value: must have the pods of each role, for example worker:")


@pytest.mark.parametrize(
    ("enabled", "own", "scaling"),
    [(True, None, "throughput"), (True, "none", "throughput"), (False, "none", ""), (False, "manual", ""),
     (None, None, ""), (None, "throughput", "throughput"), (True, "throughput", "throughput")],
)  # fmt: skip
def test_enable_elastic_is_the_policy_of_scaling(enabled: bool | None, own: str | None, scaling: str) -> None:
    document = policy(minReplicas=1, maxReplicas=3)
    document["spec"] |= {"enableElastic": enabled, "scaling": {} if own is None else {"policy": own}}
    assert problems(document) == []
    assert spec_of(in_our_words(document)).scaling == scaling


def test_a_size_that_cannot_change_is_no_reason_to_refuse_the_job() -> None:
    fixed = policy(minReplicas=2, maxReplicas=2)
    fixed["spec"]["enableElastic"] = True
    assert problems(fixed) == []
    assert spec_of(in_our_words(fixed)).scaling == ""
    assert any("spec.enableElastic: ignored" in remark for remark in remarks(fixed))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"elasticPolicy": {"minReplicas": 2}, "replicaSpecs": {"worker": worker(replicas=2, minReplicas=1)}},
         "spec.elasticPolicy.minReplicas: Invalid value: 2: must be equal to spec.replicaSpecs.worker.minReplicas (1)"),
        ({"elasticPolicy": {"nProcPerNode": 2}, "nprocPerNode": 4},
         "spec.elasticPolicy.nProcPerNode: Invalid value: 2: must be equal to spec.nprocPerNode (4), or remove one"),
        ({"elasticPolicy": {"minReplicas": 3, "maxReplicas": 2}},
         "spec.elasticPolicy.minReplicas: Invalid value: 3: must be less than or equal to maxReplicas (2)"),
        ({"elasticPolicy": {"minReplicas": "1"}},
         'spec.elasticPolicy.minReplicas: Invalid value: "1": must be an integer between 1 and 32768'),
        ({"elasticPolicy": {"nProcPerNode": 0}},
         "spec.elasticPolicy.nProcPerNode: Invalid value: 0: must be an integer between 1 and 1024"),
        ({"elasticPolicy": [1]},
         "spec.elasticPolicy: Invalid value: [1]: must be an object with minReplicas, maxReplicas, nProcPerNode,"),
        ({"enableElastic": "yes"},
         'spec.enableElastic: Invalid value: "yes": must be true or false'),
        ({"enableElastic": False, "scaling": {"policy": "throughput"},
          "replicaSpecs": {"worker": worker(minReplicas=1, maxReplicas=3)}},
         "spec.enableElastic: Invalid value: false: keeps the job's size, but spec.scaling.policy throughput changes "),
        ({"enableElastic": True, "scaling": {"policy": "manual"}},
         "spec.enableElastic: Invalid value: true: makes the job find its own size, but spec.scaling.policy is manual"),
        ({"replicaSpecs": {"worker": worker(), "master": worker(replicas=2)}},
         "spec.replicaSpecs.master.replicas: Invalid value: 2: must be 1; the master is the member with rank index 0"),
        ({"nodeUnit": 2, "replicaSpecs": {"worker": worker(replicas=2), "master": worker()}},
         "spec.replicaSpecs.worker.replicas: Invalid value: 2: must be a multiple of nodeUnit (2) together with the m"),
    ],
)  # fmt: skip
def test_what_contradicts_or_cannot_be_meant_is_named(changes: Document, said: str) -> None:
    document = job({"worker": worker(replicas=2)})
    document["spec"] |= changes
    found = problems(document)
    assert any(each.startswith(said) for each in found), found
    assert len(found) == 1, found


# -- the master -----------------------------------------------------------------------------------------------------
def with_master(**fields: Any) -> Document:
    lead = {"replicas": 1, "template": template(priorityClassName="high"), **fields}
    return job({"master": lead, "worker": worker(replicas=3, minReplicas=1)})


def test_a_job_may_be_a_master_alone() -> None:
    alone = job({"Master": worker(replicas=1)})
    assert problems(alone) == []
    spec = spec_of(alone)
    assert (spec.min_members, spec.max_members, spec.replicas, spec.has_master) == (1, 1, 1, True)


def test_what_a_master_may_cost_is_its_own() -> None:
    spec = spec_of(with_master(restartLimit=1, maxMemory="8Gi"))
    assert (spec.limits_of(MASTER).relaunch_limit, spec.limits_of(MASTER).max_memory) == (1, 8 * 2**30)
    assert spec.limits_of(Role("worker")).relaunch_limit == 5
    assert (spec.role_of(RankIndex(0)), spec.role_of(RankIndex(1)), spec.role_of(None)) == (MASTER, "worker", "worker")


def test_its_pod_is_made_from_its_own_template_and_is_found_by_name() -> None:
    asked = with_master()
    action = CreatePod(MemberId("master-0"), MASTER, RankIndex(0), NO_GENERATION, "", wanted=4)
    pod = pods_build.pod_of(asked, action)
    assert pod["metadata"]["name"] == "mnist-master-0"
    assert pod["spec"]["priorityClassName"] == "high"
    (service,) = services_of(asked)
    assert service["metadata"]["name"] == "mnist-master-0"
    assert service["spec"]["ports"][0]["port"] == 23456
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert "outrider.dev/role" not in service["spec"]["selector"], "who stands in for it is found there too"


@pytest.mark.parametrize(("limits", "replicas"), [((1, 2), 2), ((1, 1), 1), ((4, 4), 4)])
def test_a_size_that_an_elastic_job_has_found_gives_way_to_new_limits(limits: tuple[int, int], replicas: int) -> None:
    old = with_defaults(resnet())
    old["spec"]["replicaSpecs"]["worker"]["replicas"] = 3
    new = deepcopy(old)
    new["spec"]["elasticPolicy"] |= {"minReplicas": limits[0], "maxReplicas": limits[1]}
    stored = with_defaults(new, old)
    assert stored["spec"]["replicaSpecs"]["worker"]["replicas"] == replicas
    assert problems(stored) == []


def test_pods_beside_a_master_have_what_a_pytorchjob_tells_its_own() -> None:
    def told(asked: Document, role: str, index: int | None) -> dict[str, str]:
        rank_index = None if index is None else RankIndex(index)
        action = CreatePod(MemberId(f"{role}-0"), Role(role), rank_index, NO_GENERATION, "", wanted=4)
        env = pods_build.pod_of(asked, action)["spec"]["containers"][0]["env"]
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        return {entry["name"]: entry["value"] for entry in env if entry["name"] in names}

    where = {"WORLD_SIZE": "4", "MASTER_ADDR": "mnist-master-0", "MASTER_PORT": "23456"}
    assert told(with_master(), "master", 0) == {"RANK": "0", **where}
    assert told(with_master(), "worker", 1) == {"RANK": "1", **where}
    assert told(with_master(), "worker", None) == {}, "a spare has no rank yet"
    assert told(job(), "worker", 0) == {}


def test_kubectl_scale_counts_workers_alone() -> None:
    asked = with_master()
    assert resized(asked, 3) == {"spec": {"replicaSpecs": {"worker": {"replicas": 2}}}}
    told = {"condition": "Start", "continue": True, "current": 4, "last": 3, "message": "", "began": None,
            "next_evaluation": None, "policy": "throughput", "sizes": [], "decisions": []}  # fmt: skip
    scaled = status_of(asked, {"phase": "running", "scaling": told}, [], "2026-01-01T00:00:00Z")["elasticScaling"]
    assert (scaled["worker"]["currentReplicas"], scaled["worker"]["lastReplicas"]) == (3, 2)


def test_a_drain_is_held_for_the_master_as_for_the_others() -> None:
    budget = disruption.budget_of(with_master(), "policy/v1", 0)
    assert budget["spec"]["minAvailable"] == 3
    assert budget["spec"]["selector"]["matchLabels"] == {"outrider.dev/job": "mnist"}
    assert disruption.lacking(with_master(), []) == 4


def test_enough_members_have_a_node_when_the_master_has_one_too() -> None:
    status = status_of(with_master(), {"phase": "pending"}, [], "2026-01-01T00:00:00Z")
    scheduled = next(each for each in status["conditions"] if each["type"] == "Scheduled")
    assert scheduled["message"].endswith("2 are needed")
    assert set(status["replicaStatuses"]) == {"master", "worker"}


def test_armed_faults_meet_the_first_pod_of_a_rank_index() -> None:
    asked = with_master()
    asked["metadata"]["annotations"] = {"outrider.dev/chaos": "cpu-load=90:60s@rank-index=1"}

    def has_it(member: str, role: str, index: int) -> bool:
        action = CreatePod(MemberId(member), Role(role), RankIndex(index), NO_GENERATION, "", wanted=4)
        env = pods_build.pod_of(asked, action)["spec"]["containers"][0]["env"]
        return any(each["name"] == "OUTRIDER_CHAOS" for each in env)

    assert has_it("worker-0", "worker", 1)
    assert not has_it("worker-1", "worker", 2)
    assert not has_it("master-0", "master", 0)
    assert not has_it("master-1", "master", 0)
