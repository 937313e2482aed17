"""Who reads the recording of a job from a master in a cluster.

The command's own client, the real HTTP server and a real Fleet with a job; an API server says whose a token is and what
that account may do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from outrider.cli.errors import UserError
from outrider.cli.kube import recording
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.auth.metrics_readers import ACCESS_REVIEWS, TOKEN_REVIEWS, Readers
from outrider.master.kubernetes.health import Health
from outrider.master.recording import reading, replay
from outrider.wire.messages.membership import Refused
from tests.integration.kubernetes.document_server import having
from tests.integration.kubernetes.fleet_of_one import World, one_job
from tests.integration.kubernetes.test_failing_cores import fail, runs

MOST = 1 << 20
EDITOR = {"verb": "get", "namespace": "n", "group": "outrider.dev", "resource": "elasticjobs",
          "subresource": "recording"}  # fmt: skip


class Master:
    def __init__(self, world: World, port: int) -> None:
        self.world, self._port = world, port

    async def recording(self, token: str = "of-an-editor", namespace: str = "n", name: str = "train") -> bytes:
        connected = socket.create_connection(("127.0.0.1", self._port))
        return await asyncio.to_thread(recording.recording, connected, token, namespace, name, MOST)

    async def refusal(self, *request: str) -> str:
        with pytest.raises(UserError) as refused:
            await self.recording(*request)
        return refused.value.message


def whose(spec: Document) -> Document:
    return {"authenticated": True, "user": {"username": spec["token"]}} if spec["token"].startswith("of-") else {}


def may(spec: Document) -> Document:
    asked = spec.get("resourceAttributes", {})
    return {"allowed": spec["user"] == "of-an-editor" and {**asked, **EDITOR} == asked}


@asynccontextmanager
async def master(folder: Path, **settings: Any) -> AsyncIterator[Master]:
    async with having({}) as (server, api), one_job(folder, **settings) as world:
        server.reviews = {TOKEN_REVIEWS: whose, ACCESS_REVIEWS: may}
        health = Health(api, Readers(api))
        port = await health.start(0)
        health.fleet = world.fleet
        try:
            yield Master(world, port)
        finally:
            await health.stop()


async def test_who_may_read_the_jobs_recordings_gets_one_that_the_core_replays(tmp_path: Path) -> None:
    async with master(tmp_path) as served:
        await runs(served.world)
        found = reading.read((await served.recording()).splitlines())
        decided = list(replay.replayed(found))
        assert not [each for each in decided if each.differs or each.failure]
        assert any("Start(" in str(action) for each in decided for action in each.actions)


async def test_nobody_else_does(tmp_path: Path) -> None:
    async with master(tmp_path) as served:
        await runs(served.world)
        assert "HTTP 401" in await served.refusal("nobody-knows")
        assert "HTTP 403" in await served.refusal("of-a-viewer")
        assert "elasticjobs/recording in the namespace other" in await served.refusal("of-an-editor", "other")
        assert "HTTP 404" in await served.refusal("of-an-editor", "n", "unknown")


async def test_a_replica_that_does_not_lead_has_none(tmp_path: Path) -> None:
    async with having({}) as (server, api):
        server.reviews = {TOKEN_REVIEWS: whose, ACCESS_REVIEWS: may}
        health = Health(api, Readers(api))
        standby = Master(cast(World, None), await health.start(0))
        try:
            assert "does not lead" in await standby.refusal()
        finally:
            await health.stop()


async def test_the_recording_of_a_core_that_has_failed_stays(tmp_path: Path) -> None:
    async with master(tmp_path, begin_again=3600.0) as served:
        await runs(served.world)
        fail(served.world)
        await served.world.members[0].until(Refused)
        found = reading.read((await served.recording()).splitlines())
        assert found.left_out == 1, "the event that no core knows has no form in a recording"
        assert found.steps
