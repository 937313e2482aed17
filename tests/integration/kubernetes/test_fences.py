"""A document harms its own job alone: the real Fleet is shown a corpus of hostile ones beside a healthy job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outrider.master.core.k8s.values.names import Document
from tests.integration.kubernetes.api_server import JOBS, ApiServer, Asked, api_server
from tests.integration.kubernetes.hostile_documents import corpus
from tests.integration.kubernetes.served_fleet import healthy, member, served
from tests.unit.master.core.k8s.documents import recorded


def condition(job: Document, kind: str) -> Document:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), {})


def is_decided(job: Document) -> bool:
    """It is refused with a path, or it runs: the status of one that runs counts its pods."""
    valid = condition(job, "Valid")
    if valid.get("status") == "False":
        return str(valid["message"]).startswith(("spec", "metadata"))
    return "replicaStatuses" in (job.get("status") or {})


def is_decided_at(server: ApiServer, path: str) -> bool:
    return is_decided(server.documents[path])


PORTION = 40
"""Documents at a time: some are jobs of hundreds of pods, which this process makes for as long as they are there."""


async def are_decided(server: ApiServer, documents: list[Document]) -> None:
    """All of them; then they are gone, and what was made for them."""
    paths = [server.put_job(document) for document in documents]
    for path in paths:
        await server.until(partial(is_decided_at, server, path), partial(undecided, server, paths))
    for path in [path for path in server.documents if "/namespaces/team-bad/" in path]:
        server.remove(path)


def undecided(server: ApiServer, paths: list[str]) -> list[str]:
    return [f"{path}: {(server.documents[path].get('status') or {}).get('message')}" for path in paths
            if not is_decided(server.documents[path])]  # fmt: skip


HOMES = ("team-a", "team-bad", "outrider-system")
EVERYWHERE = ("/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces", f"{JOBS}/elasticjobs", "/apis/policy")
"""What is read of the whole cluster."""


def stays_home(asked: Asked) -> bool:
    """It is one of these reads, or about a thing in the namespace of a job or of the master."""
    if asked.path in EVERYWHERE or asked.path.endswith("/tokenreviews"):
        return asked.method == ("POST" if asked.path.endswith("/tokenreviews") else "GET")
    namespaces = re.findall("/namespaces/([^/]*)/", asked.path)
    body = asked.body if isinstance(asked.body, dict) else {}
    inside = (body.get("metadata") or {}).get("namespace", *namespaces[:1])
    return len(namespaces) == 1 and namespaces[0] in HOMES and inside == namespaces[0] and asked.raw == asked.path


@pytest.mark.parametrize("apart", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
async def test_a_corpus_of_hostile_documents_harms_no_other_job(tmp_path: Path, apart: int) -> None:
    async with api_server() as (server, api):
        server.put_job(healthy())
        async with served(server, api, tmp_path, clock=lambda: 0.0) as master:
            with member(master) as good:
                await good.greet()
                first = await good.trains()
                documents = [document for _title, document in corpus()][::apart]
                for at in range(0, len(documents), PORTION):
                    await are_decided(server, documents[at : at + PORTION])
                good.loses_its_rank()
                assert await good.trains() > first
            master.assert_lives()
            assert [asked for asked in server.asked if not stays_home(asked)] == []
            assert any("/namespaces/team-bad/statefulsets/" in asked.path for asked in server.asked)


# -- no callback raises ----------------------------------------------------------------------------------------------
BROKEN_PARTS: tuple[Any, ...] = (None, 7, "text", [], {}, [None], {"": None}, {"name": 7})


def broken(whole: Document) -> Iterator[Any]:
    """What is no document at all, and this one with each of its parts, and theirs, replaced."""
    yield from BROKEN_PARTS
    for part in BROKEN_PARTS:
        for name, inner in whole.items():
            yield {**whole, name: part}
            for below in inner if isinstance(inner, dict) else ():
                yield {**whole, name: {**inner, below: part}}
                if isinstance(inner[below], list):
                    yield {**whole, name: {**inner, below: [part]}}


async def test_no_callback_of_the_fleet_raises_for_any_document(tmp_path: Path) -> None:
    pod = recorded("running")
    node = {"metadata": {"name": "n", "uid": "n"}, "spec": {"taints": [{"key": "a"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}  # fmt: skip
    jobs = [document for _title, document in corpus()] + list(broken(healthy()))
    async with api_server() as (server, api), served(server, api, tmp_path, clock=lambda: 0.0) as master:
        fleet = master.fleet
        for kind in ("ADDED", "MODIFIED", "DELETED"):
            for document in jobs:
                fleet._job_changed(kind, document)
            for document in broken(pod):
                fleet._pod_changed(kind, document)
            for document in broken(node):
                fleet._nodes.shown(kind, document)
                fleet._namespaces.shown(kind, document)
        fleet._jobs_listed(jobs)
        fleet._list_pods(list(broken(pod)))
        fleet._nodes.listed(list(broken(node)))
        fleet._namespaces.listed(list(broken(node)))
        await fleet._rounds.look_at_times(1e10)
        assert fleet._rounds.candidates() is not None
        master.assert_lives()
