"""An API server that is busy, broken or slow, and watches that lose their place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket

import aiohttp
import pytest
from aiohttp import web
from multidict import CIMultiDict

from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.requests import Request
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.api.outage import until_it_answers
from outrider.master.kubernetes.api.watch import Watch
from outrider.master.kubernetes.namespace_shares import ASK_AT_ONCE
from tests.integration.kubernetes.unwell_server import Answer, api_at, hang, raw, refuses, says, streams, unwell
from tests.waiting import DEADLINE, until

POD = {"metadata": {"name": "a", "resourceVersion": "5"}}


@pytest.mark.parametrize("first", [refuses(429), refuses(500), refuses(503), raw(b"{", 200), raw(b"<html>", 502)])
async def test_what_may_pass_is_asked_again(first: object) -> None:
    async with unwell(first, says(POD)) as (server, api):  # type: ignore[arg-type]
        assert await api.get("/api/v1/pods/a") == POD
        assert len(server.asked) == 2


async def test_it_says_who_it_is() -> None:
    """The audit log and managedFields show it; before the slash is the field manager."""
    async with unwell(says(POD)) as (server, api):
        await api.get("/api/v1/pods/a")
    assert server.agents[0].startswith("outrider-master/")


async def test_a_server_that_stays_broken_is_an_error_after_some_tries() -> None:
    async with unwell(*[refuses(500, message="etcd is gone")] * 9) as (server, api):
        with pytest.raises(ApiError, match="etcd is gone") as caught:
            await api.get("/api/v1/pods/a")
        assert caught.value.status == 500
        assert len(server.asked) == 4


@pytest.mark.parametrize("status", [400, 403, 404, 409, 410, 422])
async def test_a_refusal_is_the_callers_at_once_with_the_servers_words(status: int) -> None:
    async with unwell(refuses(status, "Reason", "because")) as (server, api):
        with pytest.raises(ApiError, match=f"{status} Reason: .*because") as caught:
            await api.create("/api/v1/pods", POD)
        assert (caught.value.is_conflict, caught.value.is_absent) == (status == 409, status == 404)
        assert len(server.asked) == 1


async def test_a_server_that_hangs_is_an_error_in_time() -> None:
    async with unwell(*[hang()] * 4, seconds=1.0) as (server, api):
        with pytest.raises(ApiError, match=r"was not reached|broke off"):
            await api.get("/api/v1/pods/a")
        assert len(server.asked) == 4


async def test_a_server_that_is_not_there_is_an_error() -> None:
    api = api_at("http://127.0.0.1:1")
    with pytest.raises(ApiError, match="was not reached"):
        await api.get("/api/v1/pods/a")
    await api.close()


async def test_the_warnings_of_an_answer_are_handed_on() -> None:
    """One a header, or some in one, as a proxy may have joined them."""
    unknown = r'299 - "unknown field \"spec.a\""'

    async def answer(_request: web.Request) -> web.Response:
        headers = CIMultiDict([("Warning", unknown), ("Warning", '299 kube "a, \\\\ b" "some date", 299 - "c"')])
        return web.json_response(POD, headers=headers)

    warnings = list[str]()
    async with unwell(answer, says(POD)) as (server, api):
        await api.create("/api/v1/pods", POD, warnings, fieldValidation="Warn")
        assert warnings == ['unknown field "spec.a"', "a, \\ b", "c"]
        assert server.queries == [{"fieldValidation": "Warn"}]
        await api.create("/api/v1/pods", POD, warnings)
        assert len(warnings) == 3


@pytest.mark.parametrize(
    "path", ["api/v1/pods", "/api/v1/pods/a?x=", "/api/v1/../pods", "/api/v1/a%2Fb", "/a b", "/é", ""]
)
async def test_what_is_no_path_of_the_api_is_never_sent(path: str) -> None:
    async with unwell() as (server, api):
        with pytest.raises(ApiError, match="is not a path of the API"):
            await api.get(path)
        assert server.asked == []


async def test_every_try_is_counted_by_what_it_was_and_what_came_of_it() -> None:
    async with unwell(refuses(503), says(POD), refuses(409)) as (_, api):
        await api.get("/api/v1/namespaces/n/pods/a")
        with pytest.raises(ApiError):
            await api.create("/api/v1/namespaces/n/pods", POD)
        get, create = Request("get", "", "pods"), Request("create", "", "pods")
        assert api.requests == {(get, 503): 1, (get, 200): 1, (create, 409): 1}


# -- watches ------------------------------------------------------------------------------------------------------
def change(kind: str, name: str, version: int) -> Document:
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": str(version)}}}


def listing(*names: str, version: int, token: str = "") -> Document:
    items = [{"metadata": {"name": name, "resourceVersion": "1"}} for name in names]
    return {"items": items, "metadata": {"resourceVersion": str(version), "continue": token}}


async def watched(api: Api, want: int) -> list[object]:
    """The first reports of a watch."""
    told: list[object] = []
    enough = asyncio.Event()

    def note(what: object) -> None:
        told.append(what)
        if len(told) >= want:
            enough.set()

    watch = Watch(
        api,
        "/api/v1/pods",
        lambda items: note([item["metadata"]["name"] for item in items]),
        lambda kind, document: note((kind, document["metadata"]["name"])),
    )
    running = asyncio.ensure_future(watch.run())
    await asyncio.wait_for(enough.wait(), DEADLINE)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return told


async def test_a_watch_that_ends_continues_from_the_last_version() -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}
    answers = [
        says(listing("a", version=10)),
        streams(change("ADDED", "b", 11), bookmark),
        streams(change("DELETED", "a", 13)),
    ]
    async with unwell(*answers) as (server, api):
        assert await watched(api, 3) == [["a"], ("ADDED", "b"), ("DELETED", "a")]
        assert [query.get("resourceVersion") for query in server.queries[:3]] == [None, "10", "12"]


@pytest.mark.parametrize(
    "lost", [refuses(410, "Expired"), streams({"type": "ERROR", "object": {"code": 410, "message": "too old"}})]
)
async def test_a_watch_that_has_lost_its_place_lists_again(lost: object) -> None:
    answers = [says(listing("a", version=10)), lost, says(listing("a", "b", version=20)), streams()]
    async with unwell(*answers) as (_, api):  # type: ignore[arg-type]
        assert await watched(api, 2) == [["a"], ["a", "b"]]


async def test_a_server_that_fails_while_it_is_watched_is_waited_for() -> None:
    answers = [says(listing("a", version=10)), refuses(403, "Forbidden"), says(listing("c", version=20))]
    async with unwell(*answers) as (_, api):
        assert await watched(api, 2) == [["a"], ["c"]]


async def test_a_long_list_comes_in_pages() -> None:
    async with unwell(says(listing("a", version=9, token="more")), says(listing("b", version=9))) as (server, api):
        assert await watched(api, 1) == [["a", "b"]]
        assert server.queries[1]["continue"] == "more"


def falls_silent(*changes: Document) -> Answer:
    """A watch that shows these, and then nothing: what is between has forgotten the connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for change in changes:
            await response.write(json.dumps(change).encode() + b"\n")
        await asyncio.Event().wait()
        raise AssertionError

    return answer


async def test_a_watch_that_falls_silent_is_given_up_and_that_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    answers = [says(listing("a", version=10)), falls_silent(change("ADDED", "b", 11)), says(listing("c", version=20))]
    async with unwell(*answers, silence=0.1) as (_, api):
        assert await watched(api, 3) == [["a"], ("ADDED", "b"), ["c"]]
    (record,) = [each for each in caplog.records if "has been silent for 0.1 s" in each.getMessage()]
    assert record.levelname == "INFO"


async def test_connections_are_kept_alive_by_the_kernel() -> None:
    async with unwell(falls_silent(POD)) as (_, api):
        response = await api._send("GET", "/api/v1/pods/a", {}, None, None, aiohttp.ClientTimeout(total=10.0))
        assert response.connection is not None
        assert response.connection.transport is not None
        there = response.connection.transport.get_extra_info("socket")
        assert there.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, every, times = (
            there.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + every * times <= 90
        response.close()


# -- the beginning ------------------------------------------------------------------------------------------------
async def test_a_replica_waits_for_the_api_server_and_logs_it_once(caplog: pytest.LogCaptureFixture) -> None:
    pauses = list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    log = logging.getLogger("service")
    async with unwell(*[refuses(503)] * 5, says(POD)) as (_, api):
        found = await until_it_answers(lambda: api.get("/api/v1/pods/a"), "the key", log, pause)
    assert found == POD
    assert pauses == [1.0]
    messages = [record.getMessage() for record in caplog.records if record.name == "service"]
    first, last = messages
    assert first.startswith("the key: waiting for the API server: ")
    assert last == "the key: the API server answers again"


async def test_what_is_refused_is_not_waited_for() -> None:
    async with unwell(refuses(403, "Forbidden", "no such right")) as (_, api):
        with pytest.raises(ApiError, match="no such right"):
            await until_it_answers(lambda: api.get("/api/v1/pods/a"), "the key", logging.getLogger("service"))


async def test_a_namespace_whose_requests_hang_leaves_connections_to_the_others() -> None:
    answers = [hang()] * ASK_AT_ONCE + [says(POD)]
    async with unwell(*answers, seconds=60.0) as (server, api):
        tenants = api.in_turn(asyncio.Semaphore(ASK_AT_ONCE))
        asking = [asyncio.ensure_future(tenants.get("/api/v1/pods/b")) for _ in range(300)]
        await until(lambda: len(server.asked) >= ASK_AT_ONCE)
        assert await api.in_turn(asyncio.Semaphore(ASK_AT_ONCE)).get("/api/v1/pods/a") == POD
        assert len(server.asked) == ASK_AT_ONCE + 1
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
