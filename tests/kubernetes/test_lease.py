"""The Lease of the masters, as its holders keep it; what is to be written is decided in the core (test_leases)."""

from __future__ import annotations

import asyncio
from typing import cast

from master.shell.kubernetes.api import Api
from master.shell.kubernetes.lease import Lease
from tests.kubernetes.cluster_double import Documents


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
    """Where somebody has deleted the Lease: each new term would be one that jobs have seen before."""

    async def run() -> int:
        cluster = Documents()
        first = lease(cluster, "a")
        await first.acquire()
        await first.lift(9)
        await first.release()
        return await lease(cluster, "b").acquire()

    assert asyncio.run(run()) > 9


def test_who_does_not_hold_the_lease_lifts_nothing() -> None:
    async def run() -> int:
        cluster = Documents()
        old, new = lease(cluster, "a"), lease(cluster, "b")
        await old.acquire()
        await old.release()
        await new.acquire()
        await old.lift(9)
        await new.release()
        return await lease(cluster, "c").acquire()

    assert asyncio.run(run()) == 3
