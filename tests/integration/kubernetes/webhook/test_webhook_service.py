"""The webhook in a process of its own: a real HTTPS client, the real webhook, and an API server that has documents."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from outrider.cli.kube import yaml as kube_yaml
from outrider.master.core.k8s.values.names import MASTER_KEY, Document
from outrider.master.core.k8s.values.requests import Request
from outrider.master.kubernetes.auth import secret_keys
from outrider.master.kubernetes.health import Health
from outrider.master.kubernetes.settings import WEBHOOK, Settings
from outrider.master.kubernetes.webhook import certificates
from outrider.master.kubernetes.webhook import service as webhook_service
from tests.integration.kubernetes.cluster_double import patched
from tests.integration.kubernetes.document_server import DocumentServer, having
from tests.integration.kubernetes.webhook.test_webhook import review
from tests.waiting import until

NAMESPACE = "outrider-system"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
BASE = Path(__file__).resolve().parents[4] / "manifests" / "base"
FOLDER = Path(__file__).parents[3] / "unit/master/core/k8s/data"
KEY = "p" * 40
POD: Document = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "train-", "labels": {"outrider.dev/inject": "true"}},
    "spec": {"containers": [{"name": "trainer", "image": "mine", "command": ["python", "train.py"]}]},
}


def recorded(path: str) -> list[Document]:
    with (FOLDER / f"{path}.yaml").open() as file:
        return kube_yaml.read(file)


def owned(kind: str, api_version: str, **labels: str) -> Document:
    pod = deepcopy(POD)
    pod["metadata"]["labels"] |= labels
    owner = {"apiVersion": api_version, "kind": kind, "name": "train", "uid": "of-train", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


def switched_off() -> Document:
    pod = deepcopy(POD)
    pod["metadata"]["annotations"] = {"outrider.dev/supervise": "off"}
    return pod


PODS = [
    *recorded("pods/jobset_of_two"),
    owned("StatefulSet", "apps/v1"),
    owned("PyTorchJob", "kubeflow.org/v1", **{"training.kubeflow.org/replica-index": "0"}),
    switched_off(),
]
"""One for each kind of owner, and one whose job has perhaps begun."""


def settings(port: int) -> Settings:
    return Settings(
        "w",
        NAMESPACE,
        "w",
        "image",
        "Never",
        "tcp://master:7070",
        Path("/tmp"),
        7070,
        port,
        8080,
        "text",
        serves=WEBHOOK,
    )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


HELD = certificates.make(certificates.names_of(NAMESPACE), datetime.now(UTC))
CONFIGURATION: Document = {
    "metadata": {"name": "outrider"},
    "webhooks": [{"name": "any", "clientConfig": {"caBundle": b64encode(HELD.ca).decode()}}],
}
DOCUMENTS = {
    f"{SECRETS}/{certificates.SECRET}": certificates.secret_of(HELD, NAMESPACE),
    f"{SECRETS}/{secret_keys.PUBLIC}": {"data": {"public": b64encode(KEY.encode()).decode()}},
    **dict.fromkeys(certificates.CONFIGURATIONS, CONFIGURATION),
}


class Running:
    def __init__(self, server: DocumentServer, api: Any, port: int) -> None:
        self.server, self.api = server, api
        self.health, self.ended = Health(api), asyncio.Event()
        self.task = asyncio.ensure_future(
            webhook_service.answer(api, settings(port), self.health, self.ended, leaving=3.0)
        )
        self._url = f"https://{certificates.names_of(NAMESPACE)[0]}:{port}/mutate-pods"
        trusting = ssl.create_default_context(cadata=HELD.ca.decode())
        connector = aiohttp.TCPConnector(resolver=_Here(), ssl=trusting)
        self.client = aiohttp.ClientSession(connector=connector)

    async def is_ready(self) -> None:
        while not self.health.is_ready:
            assert not self.task.done()
            await asyncio.sleep(0.02)

    async def injected(self, pod: Document) -> tuple[Document, str | None]:
        """The new pod, and what the answer says of its connection."""
        async with self.client.post(self._url, json=review(pod)) as answer:
            response = (await answer.json())["response"]
            new = deepcopy(pod)
            patched(new, json.loads(b64decode(response.get("patch", b64encode(b"[]")))))
            return new, answer.headers.get("Connection")


class _Here(aiohttp.abc.AbstractResolver):
    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> Any:
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": family, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        pass


@asynccontextmanager
async def webhook(documents: dict[str, Document]) -> AsyncIterator[Running]:
    async with having(documents) as (server, api):
        running = Running(server, api, free_port())
        try:
            yield running
        finally:
            running.task.cancel()
            await asyncio.gather(running.task, return_exceptions=True)
            await running.client.close()


def key_in(pod: Document) -> str:
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    (sidecar,) = (each for each in containers if each["name"] == "outrider-sidecar")
    return next(str(each["value"]) for each in sidecar["env"] if each["name"] == MASTER_KEY)


async def test_it_answers_with_what_the_masters_keep_for_it() -> None:
    async with webhook(DOCUMENTS) as running:
        await running.is_ready()
        pod, _ = await running.injected(POD)
    assert key_in(pod) == KEY
    assert {method for method, _ in running.server.asked} == {"GET"}


async def test_it_is_not_ready_before_a_master_has_published_the_key() -> None:
    documents = {path: document for path, document in DOCUMENTS.items() if secret_keys.PUBLIC not in path}
    async with webhook(documents) as running:
        await until(lambda: ("GET", f"{SECRETS}/{secret_keys.PUBLIC}") in running.server.asked)
        assert not running.health.is_ready
        running.server.documents |= DOCUMENTS
        await running.is_ready()


@pytest.fixture
def granted() -> set[Request]:
    """By the roles of the webhook's account."""
    documents = list(yaml.safe_load_all((BASE / "rbac.yaml").read_text()))
    account = {"kind": "ServiceAccount", "name": "outrider-webhook", "namespace": NAMESPACE}
    bound = {
        (each["roleRef"]["kind"], each["roleRef"]["name"]) for each in documents if account in each.get("subjects", ())
    }
    rules = [rule for each in documents if (each["kind"], each["metadata"]["name"]) in bound for rule in each["rules"]]
    return {
        Request(verb, group, resource)
        for rule in rules for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
    }  # fmt: skip


async def test_its_rights_are_exactly_the_reads_that_it_makes(granted: set[Request]) -> None:
    job, jobset = recorded("owners/jobset_of_two")
    documents = {
        **DOCUMENTS,
        "/apis/batch/v1/namespaces/training/jobs/llm-workers-1": job,
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/training/jobsets/llm": jobset,
    }
    async with webhook(documents) as running:
        await running.is_ready()
        for pod in PODS:
            await running.injected(pod)
        made = {asked for asked, _ in running.api.requests if not asked.resource.startswith("/")}
    assert made == granted
    assert {request.verb for request in granted} == {"get"}


async def test_a_webhook_that_ends_keeps_answering_until_no_request_comes() -> None:
    async with webhook(DOCUMENTS) as running:
        await running.is_ready()
        assert (await running.injected(POD))[1] != "close"
        running.ended.set()
        await until(lambda: running.health.is_leaving)
        for _ in range(10):  # whatever follows from the signal in the process
            await asyncio.sleep(0)
        _, connection = await running.injected(POD)
        assert connection == "close", "the next question goes to another replica"
        await running.task
