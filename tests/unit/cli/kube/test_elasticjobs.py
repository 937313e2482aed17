"""An ElasticJob in the form of a local status document."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from outrider.cli.kube.elasticjobs import document_of
from outrider.cli.top import screen

NOW = datetime.datetime(2026, 11, 21, 3, 0, 0, tzinfo=datetime.UTC)


def job(**status: Any) -> dict[str, Any]:
    written = [{"subresource": "status", "time": "2026-11-21T02:58:00Z"}, {"time": "2026-11-21T02:59:59Z"}]
    return {"metadata": {"name": "train", "managedFields": written}, "status": status}


def test_the_status_is_read_with_kubernetes_names() -> None:
    member = {"id": "worker-0", "rankIndex": 0, "state": "running", "mode": "fork", "node": "n1", "memory": "1Gi"}
    fault = {"time": "2026-11-21T02:00:00Z", "kind": "MemberLost", "reason": "gone", "secondsLost": 2.5}
    found = document_of(
        job(phase="Running", generation="1.2", step=7, restarts=1, exitCode=3, members=[member], faults=[fault]), NOW
    )
    assert (found["phase"], found["step"], found["exit_code"]) == ("running", 7, 3)
    assert found["members"][0]["memory_limit_mib"] == 1024
    assert found["faults"][0]["seconds_lost"] == 2.5
    account = document_of(job(goodputHour=0.5, goodputDay=0.25, mtbfSeconds=9.0, time={"productive": 2.0}), NOW)
    shares = [account[name] for name in ("goodput_1h", "goodput_1d", "mtbf_seconds", "time")]
    assert shares == [0.5, 0.25, 9.0, {"productive": 2.0}]
    assert "train is running with exit code 3, generation 1.2, step 7, 1 restart" in screen.sentence(found)


def test_what_is_wrong_now_is_read_with_the_names_of_a_local_status() -> None:
    slow = {"member": "worker-1", "node": "n1", "reason": "slow", "ownSeconds": 0.3, "othersSeconds": 0.2}
    cut = {"type": "NetworkFault", "status": "True", "message": "worker-0 and worker-1 cannot reach each other"}
    found = document_of(
        job(phase="Running", members=[{"id": "worker-0"}, {"id": "worker-1"}], stragglers=[slow], conditions=[cut],
            excludedNodes=["n9"], checkpointSavedAt="2026-11-21T02:00:00Z", metrics={"loss": 0.5}),
        NOW,
    )  # fmt: skip
    assert [each["own_seconds"] for each in found["members"]] == [None, 0.3]
    assert found["stragglers"][0]["reason"] == "slow"
    assert found["network"]["down"][0]["reason"] == cut["message"]
    assert (found["excluded_nodes"], found["metrics"]) == (["n9"], {"loss": 0.5})
    assert found["checkpoint_saved_at"] == "2026-11-21T02:00:00Z"
    healed = job(phase="Running", conditions=[cut | {"status": "False"}])
    assert document_of(healed, NOW)["network"]["down"] == []


@pytest.mark.parametrize(("roles", "sizes"), [
    ({"worker": {"replicas": 2}}, (None, None)),
    ({"worker": {"minReplicas": 2, "maxReplicas": 4}}, (2, 4)),
    ({"master": {}, "worker": {"minReplicas": 2, "maxReplicas": "x"}}, (3, None)),
])  # fmt: skip
def test_the_limits_of_the_size_count_the_master(roles: dict[str, Any], sizes: tuple[int | None, ...]) -> None:
    assert document_of(job() | {"spec": {"replicaSpecs": roles}}, NOW)["sizes"] == sizes


def test_a_status_that_no_master_writes_is_late_only_while_the_job_runs() -> None:
    assert "last written 120 s ago" in document_of(job(phase="Running"), NOW)["late"]
    assert document_of(job(phase="Succeeded"), NOW)["late"] == ""


@pytest.mark.parametrize(
    "status", [None, [], {"members": {}, "faults": [3], "step": "x", "phase": 5, "stragglers": [4], "conditions": 3}]
)
def test_a_document_of_any_shape_can_be_shown(status: Any) -> None:
    found = document_of({"metadata": None, "status": status}, NOW)
    assert found["step"] == 0
    screen.sentence(found)
