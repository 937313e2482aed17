"""A replica's turn, and its end: which key it has, and what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes import service
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.auth import secret_keys
from outrider.master.kubernetes.health import Health
from outrider.master.kubernetes.lease import Lease
from outrider.master.kubernetes.settings import MASTER, Settings
from outrider.master.kubernetes.webhook import certificates
from outrider.runtime.curve_keys import new_key_pair
from tests.integration.kubernetes.cluster_double import Documents
from tests.integration.kubernetes.document_server import having
from tests.integration.kubernetes.unwell_server import api_at, refuses, says, unwell
from tests.waiting import until

NAMESPACE = "outrider-system"
CURVE = f"/api/v1/namespaces/{NAMESPACE}/secrets/{secret_keys.CURVE}"


def settings(me: str) -> Settings:
    return Settings(me, NAMESPACE, me, "image", "Never", "tcp://master:7070", Path("/tmp"), 7070, 8443, 8080, "text")


def lease(api: Documents, me: str) -> Lease:
    return Lease(cast(Api, api), "outrider-master", NAMESPACE, me)


async def test_a_replica_whose_key_the_pods_do_not_have_is_not_the_master() -> None:
    documents = Documents()
    api = cast(Api, documents)
    agreed = await secret_keys.curve(api, NAMESPACE, lease(documents, "a").has_another_holder)
    with pytest.raises(secret_keys.KeyReplaced):
        await service._acquire(api, settings("a"), lease(documents, "a"), new_key_pair())
    other = lease(documents, "a")
    assert await service._acquire(api, settings("a"), other, agreed) == 1
    assert other.is_held


async def test_a_master_that_goes_leaves_its_keys_in_their_secrets() -> None:
    documents, pair, begun = Documents(), new_key_pair(), asyncio.Event()
    api, mine = cast(Api, documents), lease(documents, "a")

    async def lead() -> None:
        async with service._secrets_kept(api, settings("a"), mine, pair, b"ticket"):
            begun.set()
            await asyncio.Event().wait()

    for holds in (True, False):
        if holds:
            await mine.acquire()
        else:
            await mine.release()
        begun.clear()
        leading = asyncio.ensure_future(lead())
        await begun.wait()
        await until(lambda: CURVE in documents.documents)
        documents.documents = {p: d for p, d in documents.documents.items() if "secrets" not in p}
        leading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leading
        assert (CURVE in documents.documents) == holds, "whoever took the Lease from it decides"
        documents.documents.pop(CURVE, None)


async def test_a_replica_that_begins_while_the_api_server_is_away_waits_for_it() -> None:
    waits = asyncio.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "waiting for the API server" in record.getMessage():
                waits.set()

    heard, api = Heard(), api_at("http://127.0.0.1:1")
    logging.getLogger("service").addHandler(heard)
    mine = Lease(api, "outrider-master", NAMESPACE, "a")
    serving = asyncio.ensure_future(service._serve(api, settings("a"), mine, Health(api), lambda _code: None))
    waiting = asyncio.ensure_future(waits.wait())
    try:
        done, _ = await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert serving not in done, serving.exception()
    finally:
        logging.getLogger("service").removeHandler(heard)
        for task in (serving, waiting):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ApiError):
            await serving
        await api.close()


PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEADERS = {"items": [{"metadata": {"name": "b"}}]}


async def test_no_replica_leads_beside_one_whose_label_could_not_be_removed() -> None:
    async with unwell(says(LEADERS), refuses(403, "Forbidden", "a policy says no")) as (server, api):
        with pytest.raises(ApiError, match="a policy says no"):
            await service.lead(api, settings("a"))
    assert ("PATCH", f"{PODS}/a") not in server.asked


async def test_a_leader_that_is_gone_needs_no_label_taken_away() -> None:
    async with unwell(says(LEADERS), refuses(404, "NotFound"), says({})) as (server, api):
        await service.lead(api, settings("a"))
    assert server.asked[-1] == ("PATCH", f"{PODS}/a")


async def test_a_master_tells_the_webhook_its_public_key_and_is_ready_when_that_one_answers() -> None:
    pair, folder = new_key_pair(), f"/api/v1/namespaces/{NAMESPACE}"
    ready: Document = {"conditions": [{"type": "Ready", "status": "True"}]}
    webhook: Document = {"metadata": {"labels": {"outrider.dev/part": "webhook"}}, "status": ready}
    documents = {
        f"{folder}/services/outrider-webhook": {"spec": {"selector": {"app.kubernetes.io/name": "outrider"}}},
    }
    async with having(documents) as (server, api):
        health = Health(api)
        me = replace(settings("a"), serves=MASTER)
        policy = Policy("image", "Never", "tcp://master:7070", pair.public)
        async with service._admission(api, me, policy, pair, health):
            assert await secret_keys.public(api, NAMESPACE) == pair.public
            await until(lambda: ("GET", f"{folder}/pods") in server.asked)
            assert not health.is_ready, "a master from before may be the only webhook yet"
            server.documents[f"{folder}/services/outrider-webhook"]["spec"]["selector"]["outrider.dev/part"] = "webhook"
            server.documents[f"{folder}/pods/outrider-webhook-1"] = webhook
            await until(lambda: health.is_ready)
            assert certificates.held_in(server.documents[f"{folder}/secrets/{certificates.SECRET}"]).key
