"""Who reads a master's /metrics: a real HTTP client, the real server, and an API server that says whose a token is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.auth import metrics_readers
from outrider.master.kubernetes.auth.metrics_readers import ACCESS_REVIEWS, TOKEN_REVIEWS, Readers
from outrider.master.kubernetes.health import Health
from tests.integration.kubernetes.document_server import DocumentServer, having
from tests.waiting import until

PROMETHEUS = "system:serviceaccount:monitoring:prometheus"
USERS: dict[str, Document] = {
    "of-prometheus": {"username": PROMETHEUS, "uid": "u1", "groups": ["system:serviceaccounts"], "extra": {"a": ["b"]}},
    "of-a-trainer": {"username": "system:serviceaccount:team-a:default"},
}


def whose(spec: Document) -> Document:
    user = USERS.get(spec["token"])
    return {"authenticated": True, "user": user} if user else {"error": "unknown"}


class Served:
    def __init__(self, server: DocumentServer, port: int, client: aiohttp.ClientSession, now: list[float]) -> None:
        self.server, self.client, self.now, self.asked_about = server, client, now, list[Document]()
        self.url = f"http://127.0.0.1:{port}"
        server.reviews = {TOKEN_REVIEWS: whose, ACCESS_REVIEWS: self._may}

    def _may(self, spec: Document) -> Document:
        self.asked_about.append(spec)
        return {"allowed": spec["user"] == PROMETHEUS}

    async def get(self, path: str = "/metrics", **headers: str) -> tuple[int, str]:
        async with self.client.get(f"{self.url}{path}", headers=headers) as answer:
            return answer.status, await answer.text()

    def reviews(self) -> int:
        return sum(method == "POST" for method, _ in self.server.asked)


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    now = [1000.0]
    async with having({}) as (server, api), aiohttp.ClientSession() as client:
        health = Health(api, Readers(api, lambda: now[0]))
        try:
            yield Served(server, await health.start(0), client, now)
        finally:
            await health.stop()


async def test_who_may_get_the_path_reads_the_metrics() -> None:
    async with served() as master:
        status, text = await master.get(Authorization="Bearer of-prometheus")
        assert status == 200
        assert "outrider_leader" in text
        (asked,) = master.asked_about
        assert asked["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        user = USERS["of-prometheus"]
        assert (asked["uid"], asked["groups"], asked["extra"]) == (user["uid"], user["groups"], user["extra"])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Basic b2Y6cHJvbWV0aGV1cw=="}, 401),
        ({"Authorization": "Bearer nobody-knows"}, 401),
        ({"Authorization": "Bearer of-a-trainer"}, 403),
    ],
)
async def test_anybody_else_reads_nothing(headers: dict[str, str], status: int) -> None:
    async with served() as master:
        found, text = await master.get(**headers)
        assert found == status
        assert "outrider_" not in text.replace("outrider-metrics-reader", "")


async def test_a_stranger_without_a_token_costs_the_api_server_nothing() -> None:
    async with served() as master:
        for _ in range(20):
            await master.get()
        assert master.reviews() == 0


async def test_the_health_of_a_replica_is_open() -> None:
    async with served() as master:
        assert (await master.get("/healthz"))[0] == 200
        assert (await master.get("/readyz"))[0] == 503, "it is not ready, and says so"
        assert master.reviews() == 0


async def test_an_answer_is_kept_for_a_while() -> None:
    async with served() as master:
        for _ in range(5):
            await master.get(Authorization="Bearer of-prometheus")
        assert master.reviews() == 2
        master.now[0] += metrics_readers.ALLOWED_SECONDS
        await master.get(Authorization="Bearer of-prometheus")
        assert master.reviews() == 4
        await master.get(Authorization="Bearer nobody-knows")
        master.now[0] += metrics_readers.REFUSED_SECONDS
        USERS["nobody-knows"] = {"username": PROMETHEUS}
        try:
            assert (await master.get(Authorization="Bearer nobody-knows"))[0] == 200, "bound meanwhile"
        finally:
            del USERS["nobody-knows"]


async def test_while_the_api_server_cannot_review_tokens_metrics_are_refused() -> None:
    async with served() as master:
        master.server.reviews = {}
        status, text = await master.get(Authorization="Bearer of-prometheus")
        assert status == 503
        assert "outrider_" not in text


async def test_many_tokens_at_once_are_looked_at_a_few_at_a_time() -> None:
    seen, most, go = 0, 0, asyncio.Event()

    class Slow:
        async def create(self, path: str, document: Any, **query: str) -> Document:
            nonlocal seen, most
            seen += 1
            most = max(most, seen)
            await go.wait()
            seen -= 1
            return {"status": {}}

    asked = Readers(Slow())  # type: ignore[arg-type]
    waiting = [asyncio.ensure_future(asked.why_refused(f"Bearer {n}")) for n in range(50)]
    again = asyncio.ensure_future(asked.why_refused("Bearer 0"))
    await until(
        lambda: (
            not (sum(task.done() for task in waiting) < 50 - metrics_readers.AT_ONCE or seen < metrics_readers.AT_ONCE)
        )
    )
    go.set()
    answers = [answer.status for answer in await asyncio.gather(*waiting) if answer]
    assert most == metrics_readers.AT_ONCE
    assert (answers.count(401), answers.count(503)) == (metrics_readers.AT_ONCE, 50 - metrics_readers.AT_ONCE)
    assert (await again) == metrics_readers.UNAUTHENTICATED, "one question a token"
    for n in range(2 * metrics_readers.KEPT):
        await asked.why_refused(f"Bearer other-{n}")
    assert len(asked._kept) == metrics_readers.KEPT
