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


def test_a_status_that_no_master_writes_is_late_only_while_the_job_runs() -> None:
    assert "last written 120 s ago" in document_of(job(phase="Running"), NOW)["late"]
    assert document_of(job(phase="Succeeded"), NOW)["late"] == ""


@pytest.mark.parametrize("status", [None, [], {"members": {}, "faults": [3], "step": "x", "phase": 5}])
def test_a_document_of_any_shape_can_be_shown(status: Any) -> None:
    found = document_of({"metadata": None, "status": status}, NOW)
    assert found["step"] == 0
    screen.sentence(found)
