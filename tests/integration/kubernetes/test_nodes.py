"""Reports on the cluster's nodes, and pods that the API server refuses to create."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from outrider.master.core.actions import CreatePod
from outrider.master.core.events import CreateRejected, Event, NodeSeen
from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.pods import nodes as node_documents
from outrider.master.core.k8s.values.names import MAX_RESTARTS, Document
from outrider.master.kubernetes.api.client import ApiError
from outrider.master.kubernetes.api.watch import Watch
from outrider.master.kubernetes.nodes import Nodes
from outrider.master.kubernetes.platform import KubernetesPlatform
from outrider.master.kubernetes.status_writer import JobRecord
from outrider.wire.ids import NO_GENERATION, MemberId, RankIndex, Role
from tests.integration.kubernetes.unwell_server import refuses, says, streams, unwell
from tests.unit.master.core.k8s.documents import job
from tests.waiting import DEADLINE


def node(name: str, ready: str = "True", **more: Any) -> Document:
    conditions = [{"type": "Ready", "status": ready, "message": "Kubelet stopped posting node status."}]
    metadata = {"name": name, "resourceVersion": "7"}
    return {"metadata": metadata, "status": {"conditions": conditions, "images": ["x"] * 100, **more}}


NOT_READY = NodeSeen("b", False, "Kubelet stopped posting node status")


def test_a_node_is_reported_when_it_has_changed_and_when_it_is_gone() -> None:
    told: list[NodeSeen] = []
    seen = Nodes(told.append)
    seen.listed([node("a"), node("b")])
    assert told == [NodeSeen("a", True), NodeSeen("b", True)]
    told.clear()
    seen.shown("MODIFIED", node("b", volumesInUse=[]))
    assert told == [], "its kubelet has written, and nothing is new"
    seen.shown("MODIFIED", node("b", "Unknown"))
    seen.shown("DELETED", node("a"))
    assert told == [NOT_READY, node_documents.gone("a")]
    assert (seen.of("a"), seen.of("b"), seen.of("c")) == (node_documents.gone("a"), NOT_READY, None)
    told.clear()
    seen.listed([node("a")])
    assert told == [node_documents.gone("b"), NodeSeen("a", True)], "a list tells what the watch has missed"


async def test_of_the_documents_of_a_long_list_only_what_is_wanted_is_kept() -> None:
    found: list[Document] = []
    listed = asyncio.Event()

    def take(documents: list[Document]) -> None:
        found.extend(documents)
        listed.set()

    pages = [says({"metadata": {"continue": "more"}, "items": [node("a")]}),
             says({"metadata": {"resourceVersion": "9"}, "items": [node("b")]}), streams()]  # fmt: skip
    async with unwell(*pages) as (_server, api):
        watch = Watch(api, "/api/v1/nodes", take, lambda _kind, _document: None, node_documents.trimmed)
        running = asyncio.ensure_future(watch.run())
        async with asyncio.timeout(DEADLINE):
            await listed.wait()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert [document["metadata"]["name"] for document in found] == ["a", "b"]
    assert not any("images" in document["status"] for document in found)


ACTION = CreatePod(MemberId("worker-1"), Role("worker"), RankIndex(1), NO_GENERATION, "")
POLICY = Policy(
    image="outrider/sidecar:0", pull_policy="IfNotPresent", endpoint="tcp://master:7070", public_key="k" * 40
)


async def asked_for(*answers: Any) -> list[Event]:
    told: list[Event] = []
    asked = job()
    asked["metadata"] |= {"resourceVersion": "1"}
    async with unwell(*answers) as (_server, api):
        await KubernetesPlatform(api, JobRecord(api, asked, 1, list), POLICY, told.append, lambda: False).create(ACTION)
    return told


async def test_a_pod_that_a_quota_forbids_is_refused_in_the_servers_words() -> None:
    why = 'pods "mnist-worker-1" is forbidden: exceeded quota: few'
    assert await asked_for(refuses(403, "Forbidden", why)) == [CreateRejected(ACTION, why)]


async def test_in_a_namespace_that_is_being_deleted_it_is_refused_for_good() -> None:
    why = "unable to create new content in namespace research because it is being terminated"
    assert await asked_for(refuses(403, "Forbidden", why)) == [CreateRejected(ACTION, why, is_final=True)]


async def test_an_annotation_that_cannot_be_meant_is_a_refusal_that_names_it() -> None:
    told: list[Event] = []
    asked = job()
    asked["metadata"] |= {"resourceVersion": "1", "annotations": {MAX_RESTARTS: "many"}}
    async with unwell() as (_server, api):
        platform = KubernetesPlatform(api, JobRecord(api, asked, 1, list), POLICY, told.append, lambda: False)
        await platform.create(ACTION)
    (refused,) = told
    assert isinstance(refused, CreateRejected)
    assert refused.reason.startswith(f"metadata.annotations[{MAX_RESTARTS}]: Invalid value")


async def test_a_request_that_the_server_could_not_serve_is_a_failure_that_may_pass() -> None:
    with pytest.raises(ApiError, match="failed calling webhook"):
        await asked_for(*[refuses(500, "InternalError", "failed calling webhook")] * 9)
