"""An API server that is busy, broken or slow, and watches that lose their place."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from master.core.cluster.names import Document
from master.core.cluster.requests import Request
from master.shell.kubernetes.api import Api, ApiError
from master.shell.kubernetes.watching import Watch
from tests.kubernetes.unwell_server import api_at, hang, raw, refuses, says, streams, unwell

POD = {"metadata": {"name": "a", "resourceVersion": "5"}}


@pytest.mark.parametrize("first", [refuses(429), refuses(500), refuses(503), raw(b"{", 200), raw(b"<html>", 502)])
async def test_what_may_pass_is_asked_again(first: object) -> None:
    async with unwell(first, says(POD)) as (server, api):  # type: ignore[arg-type]
        assert await api.get("/api/v1/pods/a") == POD
        assert len(server.asked) == 2


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


@pytest.mark.parametrize(
    "path", ["api/v1/pods", "/api/v1/pods/a?x=", "/api/v1/../pods", "/api/v1/a%2Fb", "/a b", "/é", ""]
)
async def test_what_is_no_path_of_the_api_is_never_sent(path: str) -> None:
    async with unwell() as (server, api):
        with pytest.raises(ApiError, match="is no path of the API: it is not sent"):
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
    """What a watch tells, until so much was told."""
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
    await asyncio.wait_for(enough.wait(), 30)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return told


async def test_a_watch_that_ends_goes_on_from_the_last_version_heard() -> None:
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
