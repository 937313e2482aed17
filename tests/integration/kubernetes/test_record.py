"""A job's Events, written to an API server that does not take them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from aiohttp import web

from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.status_writer import JobRecord
from tests.integration.kubernetes.unwell_server import refuses, says, unwell
from tests.waiting import until

GOING = 'events "train.1" is forbidden: unable to create new content in namespace a because it is being terminated'
JOB: Document = {
    "apiVersion": "outrider.dev/v1alpha1", "kind": "ElasticJob",
    "metadata": {"name": "train", "namespace": "a", "uid": "u", "resourceVersion": "1"}, "spec": {},
}  # fmt: skip


def add(record: JobRecord, *members: str) -> None:
    for member in members:
        record.add("MemberLost", f"{member} is lost.", "warning", member, "1.1", {})


async def written(record: JobRecord, is_done: Callable[[], bool]) -> None:
    """Until then, and what is left at last."""
    task = asyncio.ensure_future(record.post_events())
    await until(lambda: is_done())
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await record.post_last_events()


async def test_events_in_a_terminating_namespace_fail_once_and_are_not_sent_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with unwell(refuses(403, "Forbidden", GOING)) as (server, api):
        record = JobRecord(api, JOB, 1, list)
        add(record, "worker-0", "worker-1", "worker-2")
        await written(record, lambda: any(r.name == "record" for r in caplog.records))
        add(record, "worker-3")
        await record.post_last_events()
        assert server.asked == [("POST", "/api/v1/namespaces/a/events")]
    (told,) = [r.getMessage() for r in caplog.records if r.name == "record"]
    assert told.startswith("a/train: posting an Event failed")
    assert told.endswith("because it is being terminated")


async def test_the_reason_of_refused_events_is_logged_once_until_one_is_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = [refuses(422, "Invalid", f'Event "train.{n}" is invalid') for n in range(4)]
    async with unwell(*refused[:2], says({}), *refused[2:]) as (server, api):
        record = JobRecord(api, JOB, 1, list)
        add(record, *(f"worker-{n}" for n in range(5)))
        await written(record, lambda: len(server.asked) == 5)
        assert len(server.asked) == 5
    told = [r.getMessage().rpartition(" Event ")[2] for r in caplog.records if r.name == "record"]
    assert told == ['"train.0" is invalid', '"train.2" is invalid']


async def test_nothing_is_written_to_a_job_that_was_deleted_or_to_the_next_of_its_name() -> None:
    conflict = refuses(409, "Conflict", "Precondition failed: UID in precondition: u, UID in object meta: another")
    following = {**JOB, "metadata": {**JOB["metadata"], "uid": "another", "resourceVersion": "7"}}
    for answers in ([refuses(404, "NotFound", "gone")], [conflict, says(following)]):
        async with unwell(*answers) as (server, api):
            record = JobRecord(api, JOB, 1, list)
            await record.save_status({"phase": "running"})
            await record.save_status({"phase": "stopped"})
            assert record.is_gone
            assert [method for method, _ in server.asked] == ["PUT", "GET"][: len(answers)]
            assert record.job["metadata"]["uid"] == "u"


async def test_a_status_counts_as_saved_when_it_or_a_newer_one_is_written() -> None:
    """What is started because its status is saved: the next master has to find it there."""
    first, answered = asyncio.Event(), list[object]()

    async def slow(request: web.Request) -> web.Response:
        first.set()
        return await takes(request)

    async def takes(request: web.Request) -> web.Response:
        answered.append((await request.json())["status"]["phase"])
        return web.json_response(JOB)

    async with unwell(slow, takes, takes) as (_server, api):
        record = JobRecord(api, JOB, 1, list)
        one = asyncio.ensure_future(record.save_status({"phase": "running", "message": "1"}))
        await first.wait()
        two = asyncio.ensure_future(record.save_status({"phase": "restarting", "message": "2"}))
        three = asyncio.ensure_future(record.save_status({"phase": "stopped", "message": "3"}))
        await two
        assert answered[-1] == "Stopped"
        await asyncio.gather(one, three)
        assert answered == ["Running", "Stopped"], "one that a newer one has overtaken is not written"
