"""Which PodDisruptionBudget a job gets, and when it gets none of ours."""

from __future__ import annotations

import pytest

from outrider.master.core.k8s.pods import disruption
from outrider.master.core.k8s.pods.disruption import SETTLED, Patience
from outrider.master.core.k8s.values.names import Document

LABELS = {"outrider.dev/job": "train", "outrider.dev/role": "worker"}


def job(kind: str = "", replicas: int = 4, **spec: object) -> Document:
    adopts = {"adopts": {"apiVersion": "v1", "kind": kind, "name": "train"}} if kind else {}
    return {
        "metadata": {"name": "train", "namespace": "a", "uid": "u"},
        "spec": {"replicaSpecs": {"worker": {"replicas": replicas}}, **adopts, **spec},
    }


def pod(phase: str = "Running", *, unschedulable: bool = False, deleted: bool = False, **labels: str) -> Document:
    status: Document = {"phase": phase}
    if unschedulable:
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    gone = {"deletionTimestamp": "2026-11-21T00:00:00Z"} if deleted else {}
    return {
        "metadata": {"name": "p", "namespace": "a", "labels": {**LABELS, **labels}, **gone},
        "spec": {"containers": [{"name": "trainer"}]},
        "status": status,
    }


def group(*versions: str) -> Document:
    return {"kind": "APIGroup", "versions": [{"groupVersion": f"policy/{v}", "version": v} for v in versions]}


@pytest.mark.parametrize(
    ("served", "used"),
    [
        (("v1beta1",), "policy/v1beta1"),
        (("v1", "v1beta1"), "policy/v1"),
        (("v1beta1", "v1"), "policy/v1"),
        (("v1",), "policy/v1"),
        (("v2",), None),
        ((), None),
    ],
)
def test_the_version_is_one_that_the_server_has(served: tuple[str, ...], used: str | None) -> None:
    assert disruption.api_version(group(*served)) == used


def test_a_drain_moves_one_member_of_a_job_at_a_time_whatever_its_size() -> None:
    for replicas in (1, 4, 400):
        budget = disruption.budget_of(job(replicas=replicas), "policy/v1", 0)
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["minAvailable"] is None
        assert budget["spec"]["selector"] == {"matchLabels": LABELS}
    assert budget["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert (budget["apiVersion"], budget["metadata"]["name"], budget["metadata"]["namespace"]) == (
        "policy/v1", "train", "a",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["Job", "Pod", "JobSet", "PyTorchJob"])
def test_pods_whose_controller_does_not_tell_its_size_are_counted_by_us(kind: str) -> None:
    spec = disruption.budget_of(job(kind, 4), "policy/v1beta1", 0)["spec"]
    assert (spec["maxUnavailable"], spec["minAvailable"]) == (None, 3)
    assert spec["selector"] == {"matchLabels": {"outrider.dev/job": "train"}}, "of any role"


def test_a_single_pod_never_holds_a_drain() -> None:
    assert disruption.budget_of(job("Pod", 1), "policy/v1", 0)["spec"]["minAvailable"] == 0


def test_a_stateful_set_tells_its_size() -> None:
    assert disruption.budget_of(job("StatefulSet", 3), "policy/v1", 0)["spec"]["maxUnavailable"] == 1


def test_members_that_are_not_there_and_not_expected_do_not_hold_a_drain() -> None:
    assert disruption.budget_of(job(), "policy/v1", 1)["spec"]["maxUnavailable"] == 2
    assert disruption.budget_of(job("Job"), "policy/v1", 1)["spec"]["minAvailable"] == 2


@pytest.mark.parametrize(
    ("pods", "missing"),
    [
        ([pod(), pod(), pod(), pod()], 0),
        ([pod(), pod(), pod(), pod("Pending")], 0),
        ([pod(), pod(), pod(), pod("Pending", unschedulable=True)], 1),
        ([pod(), pod(), pod(), pod(deleted=True)], 1),
        ([pod(), pod(), pod("Failed"), pod("Succeeded")], 2),
        ([pod(), pod(), pod(), pod(), pod()], 0),
        ([pod(), pod(), pod(), pod(**{"outrider.dev/role": "ps"})], 1),
    ],
)
def test_missing_is_who_neither_runs_nor_will_soon(pods: list[Document], missing: int) -> None:
    assert disruption.lacking(job(), pods) == missing


def test_a_suspended_job_lacks_no_member() -> None:
    assert disruption.lacking(job(suspend=True), []) == 0


def test_a_member_counts_as_missing_only_when_it_has_been_so_for_a_while() -> None:
    patience = Patience()
    assert [patience.look(1, at) for at in (0.0, 1.0, SETTLED - 1)] == [0, 0, 0]
    assert not patience.is_settled
    assert patience.look(1, SETTLED) == 1
    assert patience.is_settled
    assert patience.look(0, SETTLED + 1) == 0, "it is back, and holds a drain at once"


def test_of_several_that_were_missing_those_count_that_were_so_all_the_time() -> None:
    patience = Patience()
    looks = [(3, 0.0), (1, 10.0), (2, 20.0), (2, SETTLED)]
    assert [patience.look(count, at) for count, at in looks] == [0, 0, 0, 1]


def test_a_replacement_that_comes_in_time_restarts_the_wait() -> None:
    patience = Patience()
    assert [patience.look(*look) for look in ((1, 0.0), (0, 5.0), (1, 6.0), (1, SETTLED + 5.0))] == [0, 0, 0, 0]


# -- somebody else's ------------------------------------------------------------------------------------------------
def budget(name: str, selector: Document, version: str = "policy/v1", **metadata: object) -> Document:
    return {"apiVersion": version, "metadata": {"name": name, **metadata}, "spec": {"selector": selector}}


@pytest.mark.parametrize(
    ("selector", "holds"),
    [
        ({"matchLabels": {"app": "mine"}}, True),
        ({"matchLabels": {"app": "another"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["mine"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["mine"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"app": "mine"}, "matchExpressions": [{"key": "other", "operator": "Exists"}]}, False),
        ({}, True),
    ],
)
def test_a_budget_of_the_users_own_is_found_by_what_it_selects(selector: Document, holds: bool) -> None:
    found = disruption.others([budget("theirs", selector)], job(), [pod(app="mine")])
    assert found == (["theirs"] if holds else [])


def test_an_empty_selector_selected_nothing_before_policy_v1() -> None:
    assert disruption.others([budget("theirs", {}, "policy/v1beta1")], job(), [pod()]) == []


def test_a_budget_is_found_before_there_are_pods_by_the_templates_labels() -> None:
    worker = {"replicas": 2, "template": {"metadata": {"labels": {"app": "mine"}}}}
    found = disruption.others(
        [budget("theirs", {"matchLabels": {"app": "mine"}})], job(replicaSpecs={"worker": worker}), []
    )
    assert found == ["theirs"]


def test_our_own_is_no_other_ones() -> None:
    ours = budget(
        "train", {"matchLabels": LABELS}, ownerReferences=[{"kind": "ElasticJob", "name": "train", "uid": "u"}]
    )
    before = budget("train", {}, ownerReferences=[{"kind": "ElasticJob", "name": "train", "uid": "old"}])
    assert disruption.others([ours], job(), [pod()]) == []
    assert disruption.is_of_an_earlier(before, job())
    assert not disruption.is_of_an_earlier(budget("train", {}), job())
