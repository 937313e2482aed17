"""A job whose core fails by a bug of ours trains unsupervised until its core restarts; no other job notices."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from outrider.wire.ids import Generation, JobName
from outrider.wire.messages.generation import Start, Stop
from outrider.wire.messages.membership import Refused, Welcome
from tests.integration.kubernetes.api_server import api_server
from tests.integration.kubernetes.fleet_of_one import World, one_job
from tests.integration.kubernetes.served_fleet import healthy, member, served

KEY = JobName("n/train")


def fail(world: World) -> None:
    """No core knows such an event."""
    world.fleet.running[KEY].put(cast(Any, object()))


async def runs(world: World) -> Generation:
    await world.pods()
    generation, same = await asyncio.gather(*(each.begins() for each in world.members))
    assert generation == same
    await world.until(lambda: world.condition("Running").get("status") == "True")
    return generation


async def test_a_job_whose_core_fails_trains_on_unsupervised_and_is_taken_over_as_it_runs(tmp_path: Path) -> None:
    async with one_job(tmp_path) as world:
        generation = await runs(world)
        fail(world)
        for each in world.members:
            told = await each.until(Refused)
            assert told.hands_off
            assert "because of a bug in Outrider" in told.reason
            assert "Its ranks continue training" in told.reason
        await world.until(lambda: world.events("SupervisionFailed"))
        for each in world.members:
            assert not (await each.until(Refused)).hands_off
            each.hello(running=generation)
        await asyncio.gather(*(each.until(Welcome) for each in world.members))
        await world.until(lambda: world.events("GenerationAdopted"))
        await world.until(lambda: world.condition("Supervised").get("status") == "True")
        assert "> object" in (tmp_path / "n.train.txt").read_text(), "its journal"
        for each in world.members:
            assert not [heard for heard in each.heard if isinstance(heard, Stop)]
            assert len([heard for heard in each.heard if isinstance(heard, Start)]) == 1
        assert world.ends == []


async def test_it_is_begun_again_without_end(tmp_path: Path) -> None:
    async with one_job(tmp_path) as world:
        await runs(world)
        for _ in range(17):
            await world.until(lambda: KEY in world.fleet.running and world.fleet.running[KEY].has_begun)
            failed = world.fleet.running[KEY]
            fail(world)
            await world.until(lambda: world.fleet.running.get(KEY) is not failed)  # noqa: B023
        await world.until(lambda: world.condition("Supervised").get("status") == "True")
        assert world.ends == []


async def test_it_may_be_deleted_meanwhile(tmp_path: Path) -> None:
    async with one_job(tmp_path, begin_again=3600.0) as world:
        await runs(world)
        fail(world)
        await world.members[0].until(Refused)
        world.fleet._job_changed("DELETED", world.job)
        await world.until(lambda: KEY not in world.fleet.running)


@pytest.mark.parametrize("state", ["{", '{"members": 7}'])
async def test_a_status_that_cannot_be_read_is_its_jobs_alone_until_it_can(state: str, tmp_path: Path) -> None:
    bad = healthy()
    bad["metadata"] = {**bad["metadata"], "name": "bad", "uid": "bad-uid"}
    bad["status"] = {"phase": "Running", "saved": {"term": 0, "state": state}}
    async with api_server() as (server, api):
        server.put_job(healthy())
        path = server.put_job(bad)
        async with served(server, api, tmp_path, begin_again=0.01) as master:

            def supervised() -> Any:
                conditions = (server.documents[path].get("status") or {}).get("conditions") or ()
                return next((each["status"] for each in conditions if each["type"] == "Supervised"), None)

            await server.until(lambda: supervised() == "False", lambda: server.documents[path])
            with member(master) as good:
                await good.greet()
                await good.trains()
            server.edit(path, status={})
            await server.until(lambda: server.all("/pods/bad-worker-0"))
            master.assert_lives()


@pytest.mark.parametrize("term", [2**63 - 1, 2**31 - 1, 1000])
async def test_a_term_that_no_master_can_have_had_ends_no_master(term: int, tmp_path: Path) -> None:
    bad = healthy()
    bad["status"] = {"saved": {"term": term}}
    async with api_server() as (server, api):
        path = server.put_job(bad)
        async with served(server, api, tmp_path, begin_again=0.01) as master:
            await server.until(lambda: master.fleet.attempts._failures)
            server.edit(path, status={})
            await server.until(lambda: server.all("/pods/good-worker-0"))
            master.assert_lives()
