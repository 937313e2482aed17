"""Pods are created in slices: real HTTP, and an API server that answers when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from outrider.master.core.actions import CreatePod, DeletePod
from outrider.master.core.events import Event
from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.kubernetes.api import client as api_module
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.platform import KubernetesPlatform
from outrider.master.kubernetes.pod_slices import LEAST_PAUSE, MOST, Slices
from outrider.master.kubernetes.status_writer import JobRecord
from outrider.wire.ids import NO_GENERATION, MemberId, PodUid, RankIndex, Role
from tests.integration.kubernetes.unwell_server import UnwellServer, refuses, says, unwell
from tests.unit.master.core.k8s.documents import job
from tests.waiting import DEADLINE, until

POLICY = Policy("outrider/sidecar:0", "IfNotPresent", "tcp://master:7070", "k" * 40)


class Slow(UnwellServer):
    """Creations wait for `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.made: list[str] = []
        self.open = 0
        self.seen: list[tuple[int, int]] = []
        """With each request: how many were answered before, and how many are open."""

    async def create(self, request: web.Request) -> web.Response:
        name = (await request.json())["metadata"]["name"]
        self.open += 1
        self.seen.append((len(self.made), self.open))
        await self.gate.wait()
        await asyncio.sleep(0)
        self.open -= 1
        self.made.append(name)
        return web.json_response({}, status=201)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        return await self.create(request) if request.method == "POST" else web.json_response({})


@asynccontextmanager
async def slow(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Slow, Api]]:
    server = Slow()
    monkeypatch.setattr("tests.integration.kubernetes.unwell_server.UnwellServer", lambda *_answers: server)
    async with unwell(seconds=60.0) as (_server, api):
        yield server, api


def platform(api: Api, name: str = "mnist") -> KubernetesPlatform:
    asked = job()
    asked["metadata"] |= {"resourceVersion": "1", "name": name}
    told = list[Event]()
    return KubernetesPlatform(api, JobRecord(api, asked, 1, list), POLICY, told.append, lambda: False)


def create(of: KubernetesPlatform, index: int) -> asyncio.Task[None]:
    action = CreatePod(MemberId(f"worker-{index}"), Role("worker"), RankIndex(index), NO_GENERATION, "")
    return asyncio.ensure_future(of.create(action))


async def test_creations_start_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slow(monkeypatch) as (server, api):
        server.gate.set()
        ours = platform(api)
        await asyncio.gather(*[create(ours, index) for index in range(200)])
        assert sorted(server.made) == sorted(f"mnist-worker-{index}" for index in range(200))
        assert server.made[0] == "mnist-worker-0"
        assert all(there <= min(answered + 1, MOST) for answered, there in server.seen)
        assert max(there for _, there in server.seen) > 1


async def test_nothing_else_waits_behind_one_jobs_creations(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slow(monkeypatch) as (server, api):
        ours = platform(api)
        ours._slices._room = MOST
        waiting = [create(ours, index) for index in range(3000)]
        await until(lambda: server.open == MOST)
        other = create(platform(api, "other"), 0)
        await until(lambda: server.open == MOST + 1)
        await ours.delete(DeletePod(MemberId("worker-1"), PodUid("u"), 0.0, NO_GENERATION, ""))
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        server.gate.set()
        await other
        assert server.seen[-1] == (0, MOST + 1)


async def test_all_jobs_together_leave_connections_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slow(monkeypatch) as (server, api):
        waiting = []
        for number in range(5):
            each = platform(api, f"job-{number}")
            each._slices._room = MOST
            waiting += [create(each, index) for index in range(MOST)]
        await until(lambda: server.open == api_module.CREATIONS)
        await api.get("/api/v1/nodes")
        server.gate.set()
        await asyncio.gather(*waiting)
        assert max(there for _, there in server.seen) == api_module.CREATIONS


async def _fails(slices: Slices, status: int) -> None:
    with pytest.raises(ApiError):
        async with slices.turn():
            raise ApiError(status, "", "")


async def test_a_server_that_is_busy_is_left_alone_and_asked_one_by_one_and_a_refusal_halves() -> None:
    slices = Slices()
    for _ in range(10):
        async with slices.turn():
            pass
    assert slices._room == 11
    await _fails(slices, 403)
    assert (slices._room, slices._resumes_at) == (5, 0.0)
    before = asyncio.get_running_loop().time()
    await _fails(slices, 503)
    assert slices._room == 1
    async with slices.turn():
        assert asyncio.get_running_loop().time() >= before + LEAST_PAUSE
    assert slices._room == 2


async def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    slices, order = Slices(), list[int]()

    async def turn(number: int) -> None:
        async with slices.turn():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*[turn(number) for number in range(100)])
    assert order == list(range(100))


async def test_who_gives_up_waiting_leaves_no_hole() -> None:
    slices = Slices()

    async def turn() -> None:
        async with slices.turn():
            await asyncio.sleep(0)

    tasks = [asyncio.ensure_future(turn()) for _ in range(10)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert slices._open == 0
    await asyncio.wait_for(turn(), DEADLINE)


def busy(status: int, retry_after: str) -> Any:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"kind": "Status"}, status=status, headers={"Retry-After": retry_after})

    return answer


@pytest.mark.parametrize("status", [429, 503])
async def test_the_pause_that_the_server_asks_for_is_kept(status: int) -> None:
    async with unwell(busy(status, "1"), says({})) as (server, api):
        before = asyncio.get_running_loop().time()
        await api.get("/api/v1/pods")
        assert asyncio.get_running_loop().time() >= before + 1.0
        assert len(server.asked) == 2


@pytest.mark.parametrize("asked_for", ["3600", "Wed, 21 Oct 2026 07:28:00 GMT", "-1", "\u00b2"])
async def test_and_bounded(monkeypatch: pytest.MonkeyPatch, asked_for: str) -> None:
    monkeypatch.setattr(api_module, "LONGEST_PAUSE", 0.3)
    async with unwell(busy(429, asked_for), says({}), refuses(404)) as (server, api):
        await api.get("/api/v1/pods")
        assert len(server.asked) == 2
