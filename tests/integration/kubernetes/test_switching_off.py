"""A job is switched off and on again while it runs: its members get the order at once, and nothing is restarted."""

from __future__ import annotations

import asyncio
from pathlib import Path

from outrider.wire.ids import Generation
from outrider.wire.messages.generation import Exited, Start, Stop, WorkerExit
from outrider.wire.messages.membership import Refused, Welcome
from tests.integration.kubernetes.fleet_of_one import World, one_job

KILLED = WorkerExit(0, 101, None, signal=9)


async def running(world: World) -> Generation:
    await world.pods()
    generation, same = await asyncio.gather(*(member.begins() for member in world.members))
    assert generation == same
    await world.until(lambda: world.condition("Running").get("status") == "True")
    return generation


async def test_off_tells_every_member_and_on_takes_them_over_as_they_run(tmp_path: Path) -> None:
    async with one_job(tmp_path) as world:
        generation = await running(world)
        world.annotate(supervise="off")
        for member in world.members:
            told = await member.until(Refused)
            assert told.hands_off
            assert told.retry_after > 0
            assert 'outrider.dev/supervise of its ElasticJob is "off"' in told.reason
        await world.until(lambda: world.condition("Supervised").get("status") == "False")
        assert world.condition("Supervised")["reason"] == "SupervisionOff"
        assert world.condition("Running")["status"] == "True", "the rest of the status stays"
        await world.until(lambda: world.events("SupervisionOff"))
        world.show()
        world.annotate(supervise=None)
        for member in world.members:
            assert not (await member.until(Refused)).hands_off
            member.hello(running=generation)
        for member in world.members:
            welcome = await member.until(Welcome)
            assert not welcome.hands_off
        await world.until(lambda: world.events("GenerationAdopted"))
        await world.until(lambda: world.condition("Supervised").get("status") == "True")
        assert len(world.events("SupervisionOff")) == 1
        for member in world.members:
            assert not [each for each in member.heard if isinstance(each, Stop)]
            assert len([each for each in member.heard if isinstance(each, Start)]) == 1


async def test_while_it_is_off_a_dead_rank_is_ignored_and_afterwards_handled(tmp_path: Path) -> None:
    async with one_job(tmp_path) as world:
        generation = await running(world)
        world.annotate(supervise="off")
        first, second = world.members
        await asyncio.gather(*(member.until(Refused) for member in world.members))
        first.say(Exited(generation, (KILLED,), 0))
        second.hello(running=generation)
        assert (await second.until(Refused)).hands_off, "who asks is told again"
        first.say(Exited(generation, (KILLED,), 0))
        world.annotate(supervise="on")
        await asyncio.gather(*(member.until(Refused) for member in world.members))
        first.hello()
        second.hello(running=generation)
        await asyncio.gather(*(member.until(Welcome) for member in world.members))
        order = await second.until(Stop)
        assert order.generation == generation
        assert not [each for each in second.heard[:-1] if isinstance(each, Stop)]


async def test_one_setting_of_the_master_leaves_every_job_alone(tmp_path: Path) -> None:
    async with one_job(tmp_path, "off") as world:
        await world.until(lambda: world.condition("Supervised").get("status") == "False")
        assert "OUTRIDER_MODE is off" in world.condition("Supervised")["message"]
        (first, _second) = world.members
        first.hello(running=Generation(1, 1))
        assert (await first.until(Refused)).hands_off
        assert world.documents.of_kind("Pod") == []
        assert world.fleet.running == {}


async def test_orders_have_other_numbers_after_each_switch(tmp_path: Path) -> None:
    async with one_job(tmp_path) as world:
        generation = await running(world)
        first = next(each for each in world.members[0].heard if isinstance(each, Start)).order
        world.annotate(supervise="off")
        await asyncio.gather(*(member.until(Refused) for member in world.members))
        world.annotate(supervise=None)
        await asyncio.gather(*(member.until(Refused) for member in world.members))
        world.members[0].hello()
        world.members[1].hello(running=generation)
        assert (await world.members[1].until(Stop)).order > first + 1


async def test_a_namespace_switches_its_jobs_off_and_on(tmp_path: Path) -> None:
    async with one_job(tmp_path) as world:
        await running(world)
        notes = {"outrider.dev/supervise": "off"}
        world.fleet._namespaces.shown("ADDED", {"metadata": {"name": "other", "annotations": notes}})
        world.fleet._namespaces.shown("ADDED", {"metadata": {"name": "n", "annotations": notes}})
        told = await asyncio.gather(*(member.until(Refused) for member in world.members))
        assert all(each.hands_off and "of its namespace n is" in each.reason for each in told)
        world.fleet._namespaces.listed([{"metadata": {"name": "n", "annotations": {"somebody": "else's"}}}])
        told = await asyncio.gather(*(member.until(Refused) for member in world.members))
        assert not any(each.hands_off for each in told)


async def test_a_job_that_is_observed_trains_and_what_would_be_done_is_said_until_it_is_supervised(
    tmp_path: Path,
) -> None:
    async with one_job(tmp_path, mode="observe") as world:
        generation = await running(world)
        first, second = world.members
        assert all(each.hands_off for member in world.members for each in member.heard if isinstance(each, Welcome))
        first.say(Exited(generation, (KILLED,), 0))
        await world.until(lambda: world.events("DryRun"))
        assert world.events("DryRun")[0].startswith(
            f"Would stop generation {generation}: Rank 0 on worker-0 was killed"
        )
        await world.until(lambda: "Would stop" in world.condition("Supervised").get("message", ""))
        assert world.condition("Supervised")["reason"] == "Observed"
        world.annotate(mode="supervise")
        for member in world.members:
            assert (await member.until(Refused)).hands_off
            assert not (await member.until(Refused)).hands_off
        first.hello()
        second.hello(running=generation)
        assert not (await second.until(Welcome)).hands_off
        assert (await second.until(Stop)).generation == generation
        assert not [each for each in first.heard + second.heard[:-1] if isinstance(each, Stop)]
