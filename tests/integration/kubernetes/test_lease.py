"""The Lease of the masters, as its holders keep it; what is to be written is decided in the core (test_leases)."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import cast

import pytest

from outrider.master.core.k8s.values.leases import DURATION, HELD
from outrider.master.kubernetes import lease as lease_of
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.lease import Lease
from tests.integration.kubernetes.api_server import api_server
from tests.integration.kubernetes.cluster_double import Documents

JOB_MADE = "2026-01-02T00:00:00Z"


def made_before(cluster: Documents, at: str = "2026-01-03T00:00:00Z") -> None:
    """The Lease was made then."""
    (found,) = cluster.documents.values()
    found["metadata"]["creationTimestamp"] = at


def lease(cluster: Documents, me: str) -> Lease:
    return Lease(cast(Api, cluster), "outrider-master", "outrider-system", me)


def test_each_holder_has_a_higher_term() -> None:
    async def run() -> list[int]:
        cluster, terms = Documents(), []
        for me in ("a", "b", "a"):
            held = lease(cluster, me)
            terms.append(await held.acquire())
            assert held.is_held
            await held.release()
            assert not held.is_held
        return terms

    assert asyncio.run(run()) == [1, 2, 3]


def test_terms_go_on_behind_one_that_a_job_knows() -> None:
    """The Lease was deleted: without lifting, new terms would be ones that jobs have seen before."""

    async def run() -> int:
        cluster = Documents()
        first = lease(cluster, "a")
        await first.acquire()
        made_before(cluster)
        assert await first.lift(9, JOB_MADE)
        await first.release()
        return await lease(cluster, "b").acquire()

    assert asyncio.run(run()) > 9


@pytest.mark.parametrize(("lease_made", "term"), [("2026-01-01T00:00:00Z", 9), ("2026-01-03T00:00:00Z", 2**31 - 1)])
def test_a_term_that_a_job_cannot_have_from_a_master_is_not_followed(lease_made: str, term: int) -> None:
    """A user who may write a job's status may write any term; at the Lease's limit of 2,147,483,647 no replica can
    lead."""

    async def run() -> int:
        cluster = Documents()
        first = lease(cluster, "a")
        await first.acquire()
        made_before(cluster, lease_made)
        assert not await first.lift(term, JOB_MADE)
        await first.release()
        return await lease(cluster, "b").acquire()

    assert asyncio.run(run()) == 2


def test_who_does_not_hold_the_lease_lifts_nothing() -> None:
    async def run() -> int:
        cluster = Documents()
        old, new = lease(cluster, "a"), lease(cluster, "b")
        await old.acquire()
        await old.release()
        await new.acquire()
        assert await old.lift(9, JOB_MADE)
        await new.release()
        return await lease(cluster, "c").acquire()

    assert asyncio.run(run()) == 3


async def test_it_is_held_for_some_time_after_a_renewal_was_sent() -> None:
    now = [100.0]
    held = Lease(cast(Api, Documents()), "outrider-master", "outrider-system", "a", lambda: now[0])
    await held.acquire()
    now[0] += HELD - 0.01
    assert held.is_held
    now[0] += 0.02
    assert not held.is_held


def test_its_clock_runs_while_the_machine_is_suspended() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= lease_of.since_boot() <= time.clock_gettime(time.CLOCK_BOOTTIME)


async def test_an_api_server_that_does_not_answer_is_asked_again_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is dead: the next try has one of its own."""
    monkeypatch.setattr(lease_of, "ANSWER_WITHIN", 0.05)
    assert HELD >= 2 * 5.0, "for two tries"
    cluster, first = Documents(), [True]

    class Deaf(Documents):
        async def get(self, path: str) -> dict[str, object]:
            if first and first.pop():
                await asyncio.Event().wait()
            return await cluster.get(path)

        create = cluster.create

    held = Lease(cast(Api, Deaf()), "outrider-master", "outrider-system", "a")
    assert await held._try() is None
    assert await held._try() == 1


async def test_an_outage_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Documents()
    cluster.refusals = [ApiError(0, "", "the API server was not reached")] * 20
    held = lease(cluster, "a")
    with caplog.at_level(logging.WARNING, "lease"):
        while cluster.refusals:
            assert await held._try() is None
        assert await held._try() == 1
    said = [record.getMessage() for record in caplog.records]
    assert [sentence.partition(":")[0] for sentence in said] == [
        "taking or renewing the Lease failed",
        "the Lease can be taken or renewed again",
    ]


async def test_the_lease_does_not_wait_behind_what_jobs_ask_of_the_server() -> None:
    """All of a pool's connections wait for answers that do not come, and the Lease is taken all the same."""
    async with api_server() as (server, api):
        asked: list[str] = []
        server.stall = lambda request: request.path.startswith("/api/v1/") and not asked.append(request.path)
        jobs = [asyncio.ensure_future(api.get("/api/v1/pods")) for _ in range(120)]
        of_lease = api.apart()
        try:
            await server.until(lambda: len(asked) >= 100, lambda: len(asked))
            assert await Lease(of_lease, "outrider-master", "outrider-system", "a").acquire() == 1
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await of_lease.close()


async def test_after_an_outage_the_holder_has_its_time_again_before_another_one_may_take_it() -> None:
    """The holder could not renew it, and the API server may answer a standby first."""
    cluster, now = Documents(), [100.0]
    holder, other = (Lease(cast(Api, cluster), "outrider-master", "outrider-system", me, lambda: now[0]) for me in "ab")
    assert await holder.acquire() == 1
    assert await other._try() is None
    cluster.refusals = [ApiError(0, "", "the API server was not reached")]
    now[0] += 120.0
    assert await other._try() is None
    assert await other._try() is None, "it is seen for the first time since"
    now[0] += DURATION - 0.1
    assert await other._try() is None
    now[0] += 0.2
    assert await other._try() == 2, "and taken where it is not renewed then either"
