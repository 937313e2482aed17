"""A member's pod as it is made from its role's template."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from outrider.master.core import quantities
from outrider.master.core.actions import CreatePod
from outrider.master.core.events import PodSeen
from outrider.master.core.k8s.elasticjob.spec import spec_of
from outrider.master.core.k8s.elasticjob.validation import problems
from outrider.master.core.k8s.pods import addresses, observe
from outrider.master.core.k8s.pods import build as pods_build
from outrider.master.core.k8s.values import identity
from outrider.master.core.k8s.values.names import SIDECAR_CONTAINER, Document
from outrider.wire.ids import NO_GENERATION, MemberId, PodUid, RankIndex, Role
from tests.unit.master.core.k8s.documents import job, template, worker


def creation(member: str, rank_index: int | None = 0, **more: Any) -> CreatePod:
    role = Role(member.rpartition("-")[0])
    index = None if rank_index is None else RankIndex(rank_index)
    return CreatePod(MemberId(member), role, index, NO_GENERATION, "", **more)


def variables(pod: Document, container: int = 0) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][container]["env"]}


def test_a_pod_is_its_roles_template_with_a_name_an_owner_and_who_it_is() -> None:
    asked = job()
    kept = deepcopy(asked)
    pod = pods_build.pod_of(asked, creation("worker-4", 1, relaunches=2))
    assert asked == kept
    assert pod["metadata"] == {
        "name": "mnist-worker-4",
        "namespace": "research",
        "labels": {
            "outrider.dev/job": "mnist",
            "outrider.dev/role": "worker",
            "outrider.dev/member": "worker-4",
            "outrider.dev/id": "4",
            "outrider.dev/rank-index": "1",
            "outrider.dev/relaunches": "2",
            "outrider.dev/inject": "true",
        },
        "annotations": {},
        "ownerReferences": [
            {
                "apiVersion": "outrider.dev/v1alpha1",
                "kind": "ElasticJob",
                "name": "mnist",
                "uid": "job-uid",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    assert variables(pod) == {"WORKER_TYPE": "worker", "WORKER_ID": "4", "WORKER_RANK": "1", "WORKER_NUM": "4"}
    assert identity.name_of(asked, MemberId("worker-4")) == pod["metadata"]["name"]


def test_a_pod_that_was_made_is_seen_as_the_member_that_was_asked_for() -> None:
    pod = pods_build.pod_of(job(), creation("worker-4", 1))
    pod["metadata"]["uid"] = "u"
    asked = PodSeen(MemberId("worker-4"), PodUid("u"), Role("worker"), RankIndex(1), "pending", has_sidecar=False)
    assert observe.seen(pod) == asked
    pod["spec"]["initContainers"] = [{"name": SIDECAR_CONTAINER}]  # the webhook adds it
    assert observe.seen(pod) == replace(asked, has_sidecar=True)


def test_a_spare_has_no_rank() -> None:
    pod = pods_build.pod_of(job(), creation("worker-5", None))
    assert "outrider.dev/rank-index" not in pod["metadata"]["labels"]
    assert "WORKER_RANK" not in variables(pod)


def test_what_the_user_has_set_stays_and_may_be_written_with_our_variables() -> None:
    own = [{"name": "WORKER_NUM", "value": "7"}, {"name": "LOG", "value": "/logs/$(WORKER_ID)"}]
    containers_ = [{"name": "main", "image": "i", "env": own}, {"name": "logs", "image": "i"}]
    asked = job({"worker": {"template": template(containers=containers_)}})
    made = pods_build.pod_of(asked, creation("worker-0", wanted=9))
    assert variables(made)["WORKER_NUM"] == "7"
    assert variables(made, 1)["WORKER_NUM"] == "9"
    names = [entry["name"] for entry in made["spec"]["containers"][0]["env"]]
    assert names.index("WORKER_ID") < names.index("LOG")


def test_labels_annotations_and_scheduling_of_the_template_are_kept() -> None:
    gang = {
        "metadata": {
            "labels": {
                "app": "x",
                "kueue.x-k8s.io/queue-name": "q",
                "scheduling.x-k8s.io/pod-group": "g",
                "outrider.dev/job": "wrong",
            },
            "annotations": {"scheduling.k8s.io/group-name": "g", "outrider.dev/script": "own.py"},
        },
        "spec": {
            **template()["spec"],
            "schedulerName": "volcano",
            "priorityClassName": "high",
            "nodeSelector": {"a": "b"},
        },
    }
    asked = job({"worker": {"template": gang}}, nprocPerNode=8)
    asked["metadata"]["annotations"] = {"outrider.dev/script": "train.py", "outrider.dev/per-rank": "1", "other": "x"}
    made = pods_build.pod_of(asked, creation("worker-0"))
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert made["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "g"
    assert made["metadata"]["labels"]["outrider.dev/job"] == "mnist"
    assert made["metadata"]["annotations"] == {
        "scheduling.k8s.io/group-name": "g",
        "outrider.dev/script": "own.py",
        "outrider.dev/per-rank": "1",
        "outrider.dev/nproc-per-node": "8",
    }
    assert {field: made["spec"][field] for field in ("schedulerName", "priorityClassName", "nodeSelector")} == {
        "schedulerName": "volcano",
        "priorityClassName": "high",
        "nodeSelector": {"a": "b"},
    }


@pytest.mark.parametrize(("asked", "made"), [(None, "Never"), ("Never", "Never"), ("OnFailure", "OnFailure")])
def test_a_trainer_that_has_succeeded_is_never_started_again(asked: str | None, made: str) -> None:
    spec = {} if asked is None else {"restartPolicy": asked}
    found = pods_build.pod_of(job({"worker": {"template": template(**spec)}}), creation("worker-0"))
    assert found["spec"]["restartPolicy"] == made


@pytest.mark.parametrize(
    ("of_role", "made"),
    [("Always", "OnFailure"), ("OnFailure", "OnFailure"), ("Never", "Never"), ("ExitCode", "Never")],
)
def test_the_restart_policy_of_a_role_is_above_its_templates(of_role: str, made: str) -> None:
    asked = job({"worker": {"template": template(restartPolicy="Always"), "restartPolicy": of_role}})
    assert problems(asked) == []
    assert pods_build.pod_of(asked, creation("worker-0"))["spec"]["restartPolicy"] == made
    assert spec_of(asked).restart_policy == of_role


def test_whole_saves_can_be_turned_off() -> None:
    pod = pods_build.pod_of(job(recovery={"atomicSave": False}), creation("worker-0"))
    assert variables(pod)["OUTRIDER_ATOMIC_SAVE"] == "0"
    assert "OUTRIDER_ATOMIC_SAVE" not in variables(pods_build.pod_of(job(), creation("worker-0")))


def test_whole_saves_can_be_required() -> None:
    assert problems(job(recovery={"atomicSave": "required"})) == []
    pod = pods_build.pod_of(job(recovery={"atomicSave": "required"}), creation("worker-0"))
    assert variables(pod)["OUTRIDER_ATOMIC_SAVE"] == "required"


def test_a_role_is_found_in_any_letters() -> None:
    pod = pods_build.pod_of(job({"worker": worker(), "PS": worker(replicas=2)}), creation("ps-1", 1))
    assert variables(pod)["WORKER_NUM"] == "2"


def terms(pod: Document) -> Any:
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


def test_a_pod_keeps_off_the_nodes_that_are_named() -> None:
    pod = pods_build.pod_of(job(), creation("worker-0", avoid=("n2", "n1", "n2")))
    assert terms(pod) == [{"matchFields": [
        {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]},
        {"key": "metadata.name", "operator": "NotIn", "values": ["n2"]},
    ]}]  # fmt: skip
    assert "affinity" not in pods_build.pod_of(job(), creation("worker-0"))["spec"]


def test_a_pod_keeps_off_a_node_in_each_of_the_users_own_terms() -> None:
    own = [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, {"matchExpressions": [{"key": "tpu"}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": own}},
                "podAffinity": {"x": 1}}  # fmt: skip
    asked = job({"worker": {"template": template(affinity=affinity)}})
    pod = pods_build.pod_of(asked, creation("worker-0", avoid=("n1",)))
    assert [term["matchExpressions"][0]["key"] for term in terms(pod)] == ["gpu", "tpu"]
    assert all(term["matchFields"][0]["values"] == ["n1"] for term in terms(pod))
    assert pod["spec"]["affinity"]["podAffinity"] == {"x": 1}


@pytest.mark.parametrize(
    ("request_", "limit", "needed", "now_request", "now_limit"),
    [
        ("4Gi", "4Gi", 8 << 30, "8Gi", "8Gi"),
        ("1Gi", "4Gi", 6 << 30, "1536Mi", "6Gi"),
        (None, "4Gi", 8 << 30, None, "8Gi"),
        ("500M", "1G", 2_000_000_000, "1000000000", "1953125Ki"),
        ("4Gi", "8Gi", 4 << 30, "4Gi", "8Gi"),
        (None, None, 1 << 30, None, "1Gi"),
    ],
)
def test_memory_grows_to_what_is_needed_and_never_shrinks(
    request_: str | None, limit: str | None, needed: int, now_request: str | None, now_limit: str
) -> None:
    resources = {
        "requests": {"cpu": "1"} | ({"memory": request_} if request_ else {}),
        "limits": {"memory": limit} if limit else {},
    }
    others = {"name": "logs", "image": "i", "resources": {"limits": {"memory": "1Gi"}}}
    asked = job({"worker": {"template": template(containers=[{"name": "main", "image": "i", "resources": resources},
                                                             others])}})  # fmt: skip
    kept = deepcopy(asked)
    before = pods_build.pod_of(asked, creation("worker-0"))
    after = pods_build.pod_of(asked, creation("worker-0", memory_limit=needed))
    found = after["spec"]["containers"][0]["resources"]
    assert (found["requests"].get("memory"), found["limits"].get("memory")) == (now_request, now_limit)
    assert found["requests"]["cpu"] == "1"
    assert after["spec"]["containers"][1] == before["spec"]["containers"][1]
    assert asked == kept


@pytest.mark.parametrize(("role", "port"), [("ps", 2222), ("worker", 3333), ("chief", 3333)])
def test_a_rank_index_has_one_address_for_all_its_members(role: str, port: int) -> None:
    service = addresses.service_of(job(), Role(role), RankIndex(0))
    assert service["metadata"]["name"] == f"mnist-{role}-0"
    assert "clusterIP" not in service["spec"], "the API server gives one, and it stays"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert [entry["port"] for entry in service["spec"]["ports"]] == [port]
    roles = {"ps": worker(), "worker": worker(), role: worker()}
    replacement = pods_build.pod_of(job(roles), creation(f"{role}-2", 0))["metadata"]["labels"]
    selector = service["spec"]["selector"]
    assert selector.items() <= replacement.items()
    del replacement["outrider.dev/serves"]  # as it is done once a pod has failed and is kept
    assert not selector.items() <= replacement.items()
    assert "outrider.dev/serves" not in pods_build.pod_of(job(), creation("worker-0"))["metadata"]["labels"]


def amounts(request: str | None, limit: str) -> Document:
    return {"resources": {"limits": {"memory": limit}, **({"requests": {"memory": request}} if request else {})}}


@pytest.mark.parametrize(
    ("of_pod", "own", "had", "pods_after", "own_after"),
    [
        (amounts("200Mi", "400Mi"), {}, "400Mi", amounts("400Mi", "800Mi"), None),
        (amounts(None, "400Mi"), {}, "400Mi", amounts(None, "800Mi"), None),
        (
            amounts("1Gi", "1Gi"),
            amounts("200Mi", "400Mi"),
            "400Mi",
            amounts("1424Mi", "1424Mi"),
            amounts("400Mi", "800Mi"),
        ),
    ],
)
def test_a_memory_limit_of_the_whole_pod_is_seen_and_raised(
    of_pod: Document, own: Document, had: str, pods_after: Document, own_after: Document | None
) -> None:
    """`spec.resources`, on by default from Kubernetes 1.34 on: what a container without a limit of its own may use."""
    asked = job({"worker": worker(replicas=1)})
    spec = asked["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    spec |= of_pod
    spec["containers"][0] |= own
    made = pods_build.pod_of(asked, creation("worker-0"))
    seen = observe.seen(made)
    assert seen is not None
    assert seen.memory_limit == quantities.parsed(had)
    assert spec_of(asked).max_memory == 32 * seen.memory_limit
    after = pods_build.pod_of(asked, creation("worker-0", memory_limit=2 * seen.memory_limit))["spec"]
    assert {"resources": after["resources"]} == pods_after
    assert after["containers"][0].get("resources") == (own_after or {}).get("resources")
    again = pods_build.pod_of(asked, creation("worker-0", memory_limit=seen.memory_limit))["spec"]
    assert again["resources"] == of_pod["resources"], "no more than it has"
