"""The API over a real unix socket: what may be asked for, and the sentence where it may not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from outrider.master.core import step as core_step
from outrider.master.core.events import (
    Asked,
    Began,
    Event,
    PodsListed,
    RestartRejected,
    RestartRequested,
    ScaleRequested,
    StopAsked,
)
from outrider.master.core.spec import JobSpec
from outrider.master.core.state.job import State
from outrider.master.service.http import Api
from outrider.master.service.status_files import Records
from outrider.runtime.http import HttpServer
from outrider.runtime.journal import Journal
from outrider.wire.ids import JobName
from outrider.wire.messages.diagnostics import REHEARSAL
from tests.waiting import until


class Served:
    def __init__(self, client: aiohttp.ClientSession, records: Records, askers: dict[str, Any]) -> None:
        self.client = client
        self.records = records
        self.askers = askers
        self.events: list[Event] = []

    async def post(self, path: str, body: object) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.client.post(f"http://job{path}", data=data) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Served]:
    state = State()
    core_step.step(state, Began(1, JobSpec(JobName("digits"), 2, 4, 3), None, 1.7e9), 0.0)
    core_step.step(state, PodsListed(()), 0.0)
    records, askers = Records(folder), dict[str, Any]()
    socket = folder / "master.sock"
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as client:
        api = Served(client, records, askers)
        server = HttpServer(Api(state, lambda: 1.0, api.events.append, records, askers, Journal()).application())
        await server.start_on_socket(socket)
        try:
            yield api
        finally:
            records.close()
            await server.stop()


async def test_what_is_asked_for_becomes_an_event(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        assert (await api.post("/v1/scale", {"replicas": 4}))[0] == 202
        assert (await api.post("/v1/restart", {"at_checkpoint": True}))[0] == 202
        assert (await api.post("/v1/restart", b""))[0] == 202
        assert (await api.post("/v1/stop", {"hard": True, "reason": "lunch"}))[0] == 202
        assert api.events == [
            ScaleRequested(4),
            RestartRequested(True),
            RestartRequested(False),
            StopAsked("lunch", True),
        ]


@pytest.mark.parametrize("answer", [{"refused": "train.py line 1: no"}, {"parked": 1.0}])
async def test_a_restart_is_tried_by_a_member_before_it_is_accepted(tmp_path: Path, answer: dict[str, Any]) -> None:
    async with served(tmp_path) as api:
        asking = asyncio.ensure_future(api.post("/v1/restart", {"check": True}))
        await until(lambda: api.askers)
        [event] = api.events
        assert isinstance(event, Asked)
        assert event.what == REHEARSAL
        api.askers[event.request]({"members": {"worker-0": answer}, "missing": []})
        status, said = await asking
        if "refused" in answer:
            assert (status, api.events[1:]) == (409, [RestartRejected("train.py line 1: no")])
            assert said["error"] == "the restart is refused, and no rank was stopped: train.py line 1: no"
        else:
            assert (status, api.events[1:]) == (202, [RestartRequested(False)])


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/v1/scale", {"replicas": 5}, "replicas: Invalid value: 5: must be from 2 to 4"),
        ("/v1/scale", {"replicas": 1}, "must be from 2 to 4"),
        ("/v1/scale", {"replicas": True}, "replicas: Invalid value: True"),
        ("/v1/scale", {"replicas": "3"}, "replicas: Invalid value: '3'"),
        ("/v1/scale", {}, "replicas: Invalid value: None"),
        ("/v1/scale", {"replica": 3}, 'unknown field replica: supported fields: "replicas"'),
        ("/v1/scale", [3], "the body must be a JSON object"),
        ("/v1/scale", b"\xff\xfe{", "the body must be a JSON object"),
        ("/v1/scale", b"[" * 20_000, "the body must be a JSON object"),
        ("/v1/restart", {"at_checkpoint": 1}, "at_checkpoint: Invalid value: 1: must be true or false"),
        ("/v1/stop", {"reason": 7}, "reason: Invalid value: must be a text"),
    ],
)
async def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path, path: str, body: object, sentence: str) -> None:
    async with served(tmp_path) as api:
        code, answer = await api.post(path, body)
        assert code == 422
        assert sentence in answer["error"]
        assert api.events == []


async def test_a_body_that_is_too_large_and_a_path_that_is_not_there_are_errors_in_json(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        code, answer = await api.post("/v1/scale", b"x" * (1 << 20))
        assert (code, "error" in answer) == (413, True)
        code, answer = await api.post("/v1/dance", {})
        assert (code, "error" in answer) == (404, True)


async def test_stacks_are_asked_of_the_members_and_answered_when_they_are_delivered(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        asking = asyncio.ensure_future(api.client.get("http://job/v1/stacks"))
        await until(lambda: api.askers)
        (event,) = api.events
        assert isinstance(event, Asked)
        assert event.what == "stacks"
        api.askers[event.request]({"members": {"worker-0": {"0": "…"}}, "missing": ["worker-1"]})
        async with await asking as answer:
            assert await answer.json() == {"members": {"worker-0": {"0": "…"}}, "missing": ["worker-1"]}
        assert api.askers == {}


async def test_events_are_followed_from_a_number_on_until_the_job_ends(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for reason in ("one", "two"):
            api.records.add("Something", reason, "normal", None, "", {})
        async with api.client.get("http://job/v1/events?follow=1&after=1") as answer:
            first = json.loads(await answer.content.readline())
            api.records.add("Something", "three", "normal", None, "", {})
            second = json.loads(await answer.content.readline())
            api.records.close()
            assert await answer.content.readline() == b""
        assert [first["reason"], second["reason"]] == ["two", "three"]


async def test_the_status_is_the_cores_document(tmp_path: Path) -> None:
    async with served(tmp_path) as api, api.client.get("http://job/v1/status") as answer:
        document = await answer.json()
        assert (document["version"], document["job"], document["phase"]) == (1, "digits", "pending")


async def test_metrics_name_the_job(tmp_path: Path) -> None:
    async with served(tmp_path) as api, api.client.get("http://job/metrics") as answer:
        assert 'outrider_world_size{job="digits",namespace=""} 0.0' in await answer.text()


@pytest.mark.parametrize("after", ["x", "-1", "1e3", "9" * 30, "²"])
async def test_a_number_of_an_event_that_is_none_is_refused(tmp_path: Path, after: str) -> None:
    async with served(tmp_path) as api, api.client.get("http://job/v1/events", params={"after": after}) as answer:
        assert answer.status == 422
