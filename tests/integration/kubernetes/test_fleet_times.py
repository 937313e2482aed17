"""ElasticJobs that are over go when their time has come, at the API server's word."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.controller import Fleet
from outrider.master.kubernetes.lease import Lease
from tests.integration.kubernetes.cluster_double import Documents

END = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


def over(**policy: object) -> Document:
    ended = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-03-01T00:00:00Z"}
    return {
        "metadata": {"name": "x", "namespace": "n", "uid": "u", "resourceVersion": "1"},
        "spec": {"runPolicy": policy, "replicaSpecs": {}},
        "status": {"phase": "Succeeded", "conditions": [ended]},
    }


async def fleet_with(job: Document) -> tuple[Fleet, Documents]:
    documents = Documents()
    lease = Lease(cast(Api, documents), "outrider-master", "outrider-system", "a")
    await lease.acquire()
    fleet = Fleet(cast(Api, documents), 1, cast(Any, None), Path(), lease, lambda _code: None)
    fleet._jobs_listed([])
    fleet._list_pods([])
    fleet._job_changed("MODIFIED", job)
    documents.calls.clear()
    return fleet, documents


async def test_a_job_that_is_over_is_deleted_after_its_time_and_not_before() -> None:
    fleet, documents = await fleet_with(over(ttlSecondsAfterFinished=60))
    await fleet._rounds.look_at_times(END + 59)
    assert documents.calls == []
    await fleet._rounds.look_at_times(END + 60)
    assert documents.calls == ["create events", "delete x"]
    await fleet._rounds.look_at_times(END + 70)
    assert documents.calls == ["create events", "delete x"], "once"


async def test_a_deletion_that_is_refused_is_tried_again() -> None:
    fleet, documents = await fleet_with(over(ttlSecondsAfterFinished=0))
    documents.refusals = [ApiError(500, "InternalError", "down"), ApiError(500, "InternalError", "down")]
    await fleet._rounds.look_at_times(END)
    await fleet._rounds.look_at_times(END)
    assert documents.calls.count("delete x") == 2


async def test_a_job_without_such_a_time_stays_and_so_does_one_whose_time_was_taken_away() -> None:
    fleet, documents = await fleet_with(over(ttlSecondsAfterFinished=60))
    fleet._job_changed("MODIFIED", over())
    await fleet._rounds.look_at_times(END + 1000)
    assert documents.calls == []
