"""A Fleet with one ElasticJob of two workers, real sockets to its members, and an API server of documents."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.values import session_ticket
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api
from outrider.master.kubernetes.auth.authn import ClusterDoor
from outrider.master.kubernetes.controller import Fleet
from outrider.master.kubernetes.lease import Lease
from outrider.master.service.refused_connections import RefusalLog
from outrider.master.service.sidecars import Sidecars
from outrider.runtime.curve_keys import KeyPair, new_key_pair
from outrider.wire.codec import encode
from outrider.wire.ids import NO_GENERATION, Generation, JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.directions import FromMaster
from outrider.wire.messages.generation import Ready, Start, Started
from outrider.wire.messages.membership import Hello, Welcome
from tests.integration.kubernetes.cluster_double import Documents
from tests.integration.master.peer import Peer, peers
from tests.unit.master.core.k8s.documents import worker
from tests.waiting import until

PATH = "/apis/outrider.dev/v1alpha1/namespaces/n/elasticjobs/train"
KEY = b"k" * 32
Message = TypeVar("Message", bound=FromMaster)


class Merging(Documents):
    """Whose merge patches are RFC 7386, and whose `…/status` is a part of its document."""

    async def patch(self, path: str, patch: Any, content_type: str = "application/merge-patch+json") -> Document:
        path = path.removesuffix("/status")
        await self._begin("patch", path)
        patch["metadata"].pop("resourceVersion", None)
        return self._stored(path, _merged(self.documents[path], patch))

    async def replace(self, path: str, document: Mapping[str, Any]) -> Document:
        return await super().replace(path.removesuffix("/status"), document)

    def of_kind(self, kind: str) -> list[Document]:
        return [document for document in self.documents.values() if document.get("kind") == kind]


def _merged(into: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    found = dict(into) if isinstance(into, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merged(found.get(name), value)
    return found


class Member:
    """A pod's sidecar, played by a test."""

    def __init__(self, number: int, peer: Peer) -> None:
        self.peer, self.id, self.uid = peer, MemberId(f"worker-{number}"), PodUid(f"pod-{number}")
        self.number = number
        self.heard: list[FromMaster] = []

    def hello(self, running: Generation = NO_GENERATION) -> None:
        said = Hello(
            JobName("n/train"), self.id, self.uid, Role("worker"), RankIndex(self.number), "", running=running,
            highest=running, group_rank=self.number, address="10.0.0.1",
        )  # fmt: skip
        ticket = session_ticket.issue(KEY, said, time.time())
        self.say(Hello(**{**{name: getattr(said, name) for name in Hello.__slots__}, "ticket": ticket}))

    def say(self, message: Any) -> None:
        self.peer.say(encode(message))

    async def until(self, kind: type[Message]) -> Message:
        """Its next message of this kind; what came before it is in `heard`."""
        while True:
            message = await self.peer.hear()
            self.heard.append(message)
            if isinstance(message, kind):
                return message

    async def begins(self) -> Generation:
        """As far as a Start."""
        self.hello()
        await self.until(Welcome)
        self.say(Ready(20000 + self.number, 1, "T0", "because"))
        return await self.starts()

    async def starts(self) -> Generation:
        order = await self.until(Start)
        self.say(Started(order.order, order.generation, (100 + self.number,)))
        return order.generation


class World:
    def __init__(self, fleet: Fleet, documents: Merging, members: list[Member], ends: list[int]) -> None:
        """`ends`: codes with which the process would have ended."""
        self.fleet, self.documents, self.members, self.ends = fleet, documents, members, ends

    @property
    def job(self) -> Document:
        return self.documents.documents[PATH]

    def annotate(self, **notes: str | None) -> None:
        """As `kubectl annotate` does, and the watch shows it."""
        meant = {f"outrider.dev/{name}": value for name, value in notes.items()}
        self.documents._stored(PATH, _merged(self.job, {"metadata": {"annotations": meant}}))
        self.show()

    def show(self) -> None:
        self.fleet._job_changed("MODIFIED", self.job)

    def condition(self, kind: str) -> Document:
        found = [c for c in (self.job.get("status") or {}).get("conditions") or () if c["type"] == kind]
        return found[0] if found else {}

    def events(self, reason: str) -> list[str]:
        return [event["message"] for event in self.documents.of_kind("Event") if event["reason"] == reason]

    async def until(self, claim: Callable[[], object]) -> None:
        await until(claim)

    async def pods(self) -> None:
        """The master makes both; the kubelet's word that they run."""
        await self.until(lambda: len(self.documents.of_kind("Pod")) >= len(self.members))
        for member in self.members:
            path = f"/api/v1/namespaces/n/pods/train-{member.id}"
            pod = self.documents.documents[path]
            pod["metadata"] |= {"uid": member.uid, "resourceVersion": "1"}
            pod["status"] = {"phase": "Running", "podIP": "10.0.0.1"}
            self.fleet._pod_changed("ADDED", pod)


@asynccontextmanager
async def one_job(
    tmp_path: Path, setting: str = "supervise", begin_again: float = 1e-5, **notes: str
) -> AsyncIterator[World]:
    documents, keys, ends = Merging(), new_key_pair(), list[int]()
    lease = Lease(cast(Api, documents), "outrider-master", "outrider-system", "a", lambda: 0.0)
    await lease.acquire()
    policy = Policy("outrider:1", "Never", "tcp://m:7070", keys.public, False)
    fleet = Fleet(cast(Api, documents), 1, policy, tmp_path, lease, ends.append, setting, begin_again=begin_again)
    fleet.sidecars = Sidecars(keys, ClusterDoor(cast(Api, documents), KEY, fleet.inbox), RefusalLog())
    endpoint = fleet.sidecars.bind("tcp://127.0.0.1:*")
    documents.documents[PATH] = _job(notes)
    with _members(endpoint, keys) as members:
        fleet._jobs_listed([documents.documents[PATH]])
        fleet._list_pods([])
        try:
            yield World(fleet, documents, members, ends)
        finally:
            for task in list(fleet._background.tasks):
                task.cancel()
            await asyncio.gather(*fleet._background.tasks, return_exceptions=True)
            fleet.sidecars.close()


def _job(notes: Mapping[str, str]) -> Document:
    return {
        "apiVersion": "outrider.dev/v1alpha1", "kind": "ElasticJob",
        "metadata": {"name": "train", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1,
                     "annotations": {f"outrider.dev/{name}": value for name, value in notes.items()}},
        "spec": {"replicaSpecs": {"worker": worker(replicas=2)}},
    }  # fmt: skip


class _members:
    def __init__(self, endpoint: str, keys: KeyPair) -> None:
        self._peers = peers(endpoint, keys, 2)

    def __enter__(self) -> list[Member]:
        return [Member(number, peer) for number, peer in enumerate(self._peers.__enter__())]

    def __exit__(self, *error: Any) -> None:
        self._peers.__exit__(*error)
