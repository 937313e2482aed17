"""Faults as users name them, and the pods of an ElasticJob for which some are armed."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.master.core.actions import CreatePod
from outrider.master.core.k8s.elasticjob.validation import problems
from outrider.master.core.k8s.pods import armed_faults
from outrider.master.core.k8s.pods import build as pods_build
from outrider.master.core.k8s.values import chaos
from outrider.master.core.k8s.values.names import CHAOS, Document
from outrider.wire.ids import NO_GENERATION, MemberId, RankIndex, Role
from tests.unit.master.core.k8s.documents import job


def with_note(text: str, **spec: Any) -> Document:
    document = job(**spec)
    document["metadata"]["annotations"] = {CHAOS: text}
    return document


def pod(document: Document, number: int, rank_index: int) -> Document:
    member = MemberId(f"worker-{number}")
    return pods_build.pod_of(document, CreatePod(member, Role("worker"), RankIndex(rank_index), NO_GENERATION, ""))


def armed_in(pod: Document) -> list[str]:
    """The trainer's variables of that name."""
    return [entry["value"] for entry in pod["spec"]["containers"][0]["env"] if entry["name"] == chaos.VARIABLE]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cpu-load=90", chaos.Fault("cpu-load", "90")),
        ("fill-memory=7:1m30s", chaos.Fault("fill-memory", "7", 90.0)),
        ("bad-node", chaos.Fault("bad-node")),
        ("bad-node=slow", chaos.Fault("bad-node", "slow")),
        ("freeze-member:2.5", chaos.Fault("freeze-member", "", 2.5)),
    ],
)
def test_a_fault_is_read_and_written(text: str, fault: chaos.Fault) -> None:
    assert chaos.parsed(text) == fault
    assert chaos.parsed(str(fault)) == fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", '"": supported values: "cpu-load=PERCENT", "fill-memory=PERCENT", "bad-node",'),
        ("flood", '"flood": supported values: "cpu-load=PERCENT", "fill-memory=PERCENT", "bad-node",'),
        ("cpu-load", "must be cpu-load=PERCENT, with PERCENT an integer from 1 to 100"),
        ("cpu-load=101", "must be cpu-load=PERCENT, with PERCENT an integer from 1 to 100"),
        ("cpu-load=9.5", "must be cpu-load=PERCENT, with PERCENT an integer from 1 to 100"),
        ("bad-node=fast", "must be bad-node or bad-node=slow"),
        ("hang=1", "must be hang"),
        ("hang:", 'the duration must be greater than 0: a number of seconds or a string such as "10m",'),
        ("hang:0s", 'the duration must be greater than 0: a number of seconds or a string such as "10m",'),
        ("hang:8761h", "the duration must be at most one year; leave it out for a fault that lasts until undone"),
    ],
)
def test_what_is_no_fault_is_said(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"Unsupported value|Invalid value") as refused:
        chaos.parsed(text)
    assert said in str(refused.value)


def test_a_long_duration_is_written_in_digits() -> None:
    assert str(chaos.parsed("cpu-load=10:8760h")) == "cpu-load=10:31536000s"
    assert chaos.parsed("cpu-load=10:1h0.5s").lasts == "3600.5 s"


def test_the_first_member_of_a_rank_index_is_armed_and_no_other() -> None:
    document = with_note("cpu-load=90:60s@rank-index=1, bad-node@rank-index=1", nodeCheck={"enabled": True})
    assert problems(document) == []
    assert armed_in(pod(document, 1, 1)) == ["cpu-load=90:60s,bad-node"]
    assert armed_in(pod(document, 0, 0)) == []
    assert armed_in(pod(document, 4, 1)) == [], "its replacement is well"


def test_only_the_trainer_is_armed() -> None:
    document = with_note("cpu-load=90@rank-index=0")
    main = document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    main.append({"name": "logs", "image": "logs:1"})
    made = pod(document, 0, 0)
    assert armed_in(made) == ["cpu-load=90"]
    assert chaos.VARIABLE not in [entry["name"] for entry in made["spec"]["containers"][1]["env"]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpu-load=90", "must be cpu-load=PERCENT@rank-index=N or fill-memory"),
        ("cpu-load=900@rank-index=0", "must be cpu-load=PERCENT, with PERCENT an integer from 1 to 100"),
        ("hang@rank-index=0", "hang can only be injected while the job runs; must be cpu-load=PERCENT@rank-index=N or"),
        (
            "allowed",
            "must be a fault such as cpu-load=90@rank-index=1; allowed belongs in the annotations of",
        ),
        ("cpu-load=90@rank-index=4", "rank-index must be between 0 and 3"),
        (
            "cut-network:30s@rank-index=0",
            "the trainer's container needs root, the capability NET_ADMIN and no hostNetwork to break",
        ),
        ("cut-network:30s@rank-index=0", "can use outrider chaos cut-network --pod NAME"),
        ("slow-network=90@rank-index=0", "can use outrider chaos slow-network MS --pod NAME"),
        ("bad-node@rank-index=0", "only the node check can detect it; set spec.nodeCheck.enabled"),
    ],
)
def test_a_job_with_what_cannot_be_armed_is_refused(text: str, said: str) -> None:
    (problem,) = problems(with_note(text))
    assert problem.startswith("metadata.annotations[outrider.dev/chaos]: ")
    assert said in problem


@pytest.mark.parametrize(
    ("rights", "has_right"),
    [
        ({"capabilities": {"add": ["NET_ADMIN"]}}, True),
        ({"capabilities": {"add": ["CAP_NET_ADMIN"]}, "runAsUser": 0}, True),
        ({"privileged": True}, True),
        ({"capabilities": {"add": ["NET_ADMIN"]}, "runAsUser": 1000}, False),
        ({"capabilities": {"add": ["SYS_PTRACE"], "drop": ["NET_ADMIN"]}}, False),
    ],
)
def test_a_network_fault_is_armed_where_the_trainer_has_the_right_to_it(
    rights: dict[str, Any], has_right: bool
) -> None:
    document = with_note("cut-network:30s@rank-index=1")
    template = document["spec"]["replicaSpecs"]["worker"]["template"]
    template["spec"]["containers"][0]["securityContext"] = rights
    assert (problems(document) == []) is has_right
    template["spec"]["hostNetwork"] = True
    assert problems(document) != []


@pytest.mark.parametrize("containers", [None, [], ["train"], [{"name": 1, "securityContext": "root"}]], ids=repr)
def test_a_template_of_any_shape_has_no_right(containers: object) -> None:
    assert not armed_faults.may_break_its_network({"metadata": "none", "spec": {"containers": containers}})


def test_a_stored_job_with_what_cannot_be_armed_makes_pods_that_are_well() -> None:
    assert armed_in(pod(with_note("cpu-load=none@rank-index=0"), 0, 0)) == []


def test_nothing_is_armed_for_pods_of_another_owner() -> None:
    adopts = {"apiVersion": "batch/v1", "kind": "Job", "name": "mnist"}
    (problem,) = problems(with_note("cpu-load=9@rank-index=0", roles={"worker": {"replicas": 2}}, adopts=adopts))
    assert "all pods of another owner have one template, so no fault can be armed for a single pod" in problem


def test_a_template_that_would_break_every_replacement_is_refused() -> None:
    document = job()
    document["spec"]["replicaSpecs"]["worker"]["template"]["metadata"] = {"annotations": {CHAOS: "bad-node"}}
    (problem,) = problems(document)
    assert '"bad-node": supported values: "allowed" (on a pod a fault would break every replacement' in problem


def test_a_template_may_say_that_its_pods_may_be_broken_and_so_do_its_pods() -> None:
    document = job()
    document["spec"]["replicaSpecs"]["worker"]["template"]["metadata"] = {"annotations": {CHAOS: chaos.ALLOWED}}
    assert problems(document) == []
    assert pod(document, 3, 3)["metadata"]["annotations"][CHAOS] == chaos.ALLOWED
