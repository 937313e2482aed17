"""`checkpointMemory`: it reaches the trainer, the volume has room for it, and an amount that cannot be is refused."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.master.core.k8s.elasticjob import validation
from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.injection.webhook import Injection, inject
from outrider.master.core.k8s.owners.owner import place_of
from outrider.master.core.k8s.pods.build import handed_on
from outrider.master.core.k8s.values.names import CHECKPOINT_MEMORY, CHECKPOINT_PATH, INJECT

POLICY = Policy("outrider/sidecar:test", "IfNotPresent", "tcp://master:7070", "key")


def pod(amount: str, limit: str = "") -> dict[str, Any]:
    trainer: dict[str, Any] = {"name": "t", "image": "i", "command": ["python", "train.py"]}
    if limit:
        trainer["resources"] = {"limits": {"memory": limit}}
    notes = {CHECKPOINT_MEMORY: amount}
    return {
        "metadata": {"name": "job-0", "labels": {INJECT: "true"}, "annotations": notes},
        "spec": {"containers": [trainer]},
    }


def injected(document: dict[str, Any]) -> Injection:
    place = place_of(document, "default", {})
    assert place is not None
    return inject(document, place, POLICY)


def job(amount: object, limit: str = "4Gi") -> dict[str, Any]:
    trainer = {"name": "t", "image": "i", "resources": {"limits": {"memory": limit}}}
    worker = {"replicas": 2, "template": {"spec": {"containers": [trainer]}}}
    return {"metadata": {"name": "job"}, "spec": {"replicaSpecs": {"worker": worker}, "checkpointMemory": amount}}


def test_the_trainer_has_the_variable_and_the_volume_has_room() -> None:
    spec = injected(pod("2Gi", limit="4Gi")).pod["spec"]
    assert {"name": "OUTRIDER_CHECKPOINT_MEMORY", "value": str(2 << 30)} in spec["containers"][0]["env"]
    assert spec["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "2064Mi"}


def test_all_the_memory_of_the_trainer_is_too_much() -> None:
    refused = injected(pod("4Gi", limit="4Gi")).refused
    assert "must be less than the memory limit of the trainer's container t (4Gi)" in refused
    assert injected(pod("4Gi")).refused == ""


@pytest.mark.parametrize("amount", ["much", "-1Gi", "0", "1000", "2 Gi"])
def test_what_is_no_amount_is_refused_by_name(amount: str) -> None:
    with pytest.raises(ValueError, match="must be an amount of memory of at least 1Mi"):
        place_of(pod(amount), "default", {})


def test_a_job_hands_it_on_to_its_pods_and_is_refused_where_they_would_be() -> None:
    assert handed_on(job("2Gi"))[CHECKPOINT_MEMORY] == "2Gi"
    assert not [said for said in validation.problems(job("2Gi")) if "checkpoint" in said]
    assert any(
        'checkpoint-memory]: Invalid value: "4Gi": must be less than' in said
        for said in validation.problems(job("4Gi"))
    )
    assert any(
        'checkpoint-memory]: Invalid value: "many": must be an amount' in said
        for said in validation.problems(job("many"))
    )


def marked(path: object, amount: object = "2Gi") -> dict[str, Any]:
    found = job(amount)
    found["spec"]["checkpointPath"] = path
    return found


def test_a_marked_path_reaches_the_trainer() -> None:
    document = pod("2Gi")
    document["metadata"]["annotations"][CHECKPOINT_PATH] = "ckpt/last.pt"
    spec = injected(document).pod["spec"]
    assert {"name": "OUTRIDER_CHECKPOINT_PATH", "value": "ckpt/last.pt"} in spec["containers"][0]["env"]
    assert handed_on(marked("/data/last.pt"))[CHECKPOINT_PATH] == "/data/last.pt"
    assert not [said for said in validation.problems(marked("/data/last.pt")) if "checkpoint" in said]


def test_a_marked_path_without_memory_is_refused() -> None:
    said = " ".join(validation.problems(marked("/data/last.pt", None)))
    assert "/data/last.pt are stored in memory; set the size of that memory" in said


@pytest.mark.parametrize("path", ["", "/data/", "..", "ckpt/.", "a\nb"])
def test_what_names_no_file_is_refused(path: str) -> None:
    said = " ".join(validation.problems(marked(path)))
    assert "checkpoint-path]: Invalid value" in said
    assert "must be the file name" in said


def test_a_path_that_is_too_long_is_refused() -> None:
    said = validation.problems(marked("x" * 1025))
    assert said == ["spec.checkpointPath: Too long: may not be more than 1024 characters"]


@pytest.mark.parametrize("path", ["~/last.pt", "/data/*.pt", "/data/epoch-?/last.pt"])
def test_what_only_a_shell_understands_is_refused(path: str) -> None:
    said = validation.problems(marked(path))
    assert any("checkpoint-path]: " in each and "which are not expanded" in each for each in said)
