"""A job's budget and its owner, with an API server that answers what a test has written down."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outrider.master.core.actions import FollowOwner, ResizeOwner
from outrider.master.core.events import Event, OwnerEnded, OwnerSized
from outrider.master.core.k8s.owners.resize import CannotResize
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.adoption import adopt
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.budgets import Budgets
from outrider.master.kubernetes.owned_objects import Belongings
from outrider.master.kubernetes.owner import Owner
from outrider.master.kubernetes.status_writer import JobRecord
from outrider.wire.ids import Generation
from tests.integration.kubernetes.unwell_server import Answer, UnwellServer, refuses, says, unwell
from tests.waiting import DEADLINE, until

POLICY = says({"versions": [{"version": "v1beta1"}]})
NOBODYS = says({"items": []})
BUDGETS = "/apis/policy/v1beta1/namespaces/a/poddisruptionbudgets"
STATEFUL_SET = "/apis/apps/v1/namespaces/a/statefulsets/train"


def job(kind: str = "", **roles: int) -> Document:
    specs = {role: {"replicas": count} for role, count in (roles or {"worker": 2}).items()}
    adopts = {"adopts": {"apiVersion": "apps/v1", "kind": kind, "name": "train"}} if kind else {}
    owner = {"kind": kind, "name": "train", "uid": "the-owners"}
    return {
        "metadata": {"name": "train", "namespace": "a", "uid": "u", "resourceVersion": "1", "ownerReferences": [owner]},
        "spec": {"replicaSpecs": specs, **adopts},
    }


@asynccontextmanager
async def doing(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def asked(server: UnwellServer, count: int) -> list[tuple[str, str]]:
    await until(lambda: len(server.asked) >= count)
    return server.asked


def belongings(api: Api, document: Document) -> Belongings:
    return Belongings(api, JobRecord(api, document, 1, list), list, lambda: True)


@asynccontextmanager
async def kept(document: Document, *answers: Answer) -> AsyncIterator[UnwellServer]:
    async with unwell(*answers) as (server, api), doing(belongings(api, document).keep()):
        yield server


# -- what a job has -------------------------------------------------------------------------------------------------
async def test_a_budget_is_made_in_the_version_that_the_server_has() -> None:
    async with kept(job(), POLICY, NOBODYS, says({}, 201)) as server:
        assert await asked(server, 3) == [("GET", "/apis/policy"), ("GET", BUDGETS), ("POST", BUDGETS)]


async def test_our_own_of_an_earlier_master_is_brought_up_to_date() -> None:
    async with kept(job(), POLICY, NOBODYS, refuses(409), says(ours(maxUnavailable=2)), says({})) as server:
        assert (await asked(server, 5))[3:] == [("GET", f"{BUDGETS}/train"), ("PATCH", f"{BUDGETS}/train")]


async def test_our_own_that_is_as_it_should_be_is_not_written_again() -> None:
    api_server = (POLICY, NOBODYS, refuses(409), says(ours(maxUnavailable=1)))
    async with unwell(*api_server) as (server, api):
        kept = belongings(api, job())
        async with doing(kept.keep()):
            await asked(server, 4)
            kept.stir()
        assert [method for method, _ in server.asked] == ["GET", "GET", "POST", "GET"]


def ours(**spec: object) -> Document:
    selector = {"matchLabels": {"outrider.dev/job": "train", "outrider.dev/role": "worker"}}
    owner = {"kind": "ElasticJob", "name": "train", "uid": "u"}
    return {"metadata": {"name": "train", "ownerReferences": [owner]}, "spec": {"selector": selector, **spec}}


async def test_a_foreign_object_of_the_same_name_is_left_alone_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    theirs = {"metadata": {"name": "train"}, "spec": {"selector": {"matchLabels": {"app": "other"}}}}
    async with kept(job(), POLICY, says({"items": [theirs]}), refuses(409), says(theirs)) as server:
        await asked(server, 4)
        await asyncio.wait_for(
            told(caplog, "A PodDisruptionBudget train that does not belong to this job exists"), DEADLINE
        )
        assert {method for method, _ in server.asked} == {"GET", "POST"}


async def test_a_refusal_is_reported_in_the_servers_words(caplog: pytest.LogCaptureFixture) -> None:
    async with kept(job(), POLICY, NOBODYS, refuses(403, "Forbidden", "cannot create resource")):
        await asyncio.wait_for(told(caplog, "cannot create resource"), DEADLINE)


async def test_services_come_before_the_budget() -> None:
    services = "/api/v1/namespaces/a/services"
    async with kept(
        job(worker=2, ps=1), says({}, 201), says({}, 201), says({}, 201), POLICY, NOBODYS, says({}, 201)
    ) as server:
        assert (await asked(server, 6))[:4] == [*[("POST", services)] * 3, ("GET", "/apis/policy")]


async def told(caplog: pytest.LogCaptureFixture, words: str) -> None:
    await until(lambda: any(words in record.getMessage() for record in caplog.records))


# -- its owner ------------------------------------------------------------------------------------------------------
def owner(replicas: int, uid: str = "the-owners") -> Document:
    return {"metadata": {"name": "train", "uid": uid}, "spec": {"replicas": replicas}}


def resize(replicas: int) -> ResizeOwner:
    return ResizeOwner(replicas, Generation(1, 1), "The user wants it.")


@asynccontextmanager
async def owned(
    document: Document, *answers: Answer, lacks_pods: bool = False
) -> AsyncIterator[tuple[UnwellServer, Owner, list[Event]]]:
    events: list[Event] = []
    async with unwell(*answers) as (server, api):
        record = JobRecord(api, document, 1, list)
        yield server, Owner(api, record, events.append, lambda: lacks_pods, every=0.01), events


def suspended(owner: Document) -> Document:
    return {**owner, "spec": {**owner["spec"], "suspend": True}}


async def test_an_owner_is_read_at_the_beginning_and_when_its_pods_change() -> None:
    async with (
        owned(job("StatefulSet"), says(owner(2)), says(suspended(owner(3)))) as (server, of_job, events),
        doing(of_job.keep()),
    ):
        await asked(server, 1)
        of_job.stir()
        assert await asked(server, 2) == [("GET", STATEFUL_SET)] * 2
        await until(lambda: len(events) >= 2)
        assert events == [OwnerSized(2), OwnerSized(3, suspended=True)]


async def test_an_owner_whose_pods_are_missing_is_read_again_though_nothing_changes_and_its_end_is_reported() -> None:
    given_up = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
    ended = owner(2) | {"status": {"conditions": [given_up]}}
    async with (
        owned(job("StatefulSet"), says(owner(2)), says(ended), lacks_pods=True) as (_server, of_job, events),
        doing(of_job.keep()),
        asyncio.timeout(DEADLINE),
    ):
        await until(lambda: len(events) >= 3)
    assert events[1:3] == [OwnerSized(2), OwnerEnded(False, "StatefulSet train has failed (DeadlineExceeded)")]


async def test_an_owner_is_asked_for_another_size() -> None:
    async with owned(job("StatefulSet"), says(owner(2)), says(owner(3))) as (server, of_job, events):
        await of_job.resize(resize(3))
        assert [method for method, _ in server.asked] == ["GET", "PATCH"]
        assert events == [OwnerSized(3)]


async def test_an_owner_that_has_the_size_is_left_as_it_is() -> None:
    async with owned(job("StatefulSet"), says(owner(3))) as (server, of_job, events):
        await of_job.resize(resize(3))
        assert ([method for method, _ in server.asked], events) == (["GET"], [OwnerSized(3)])


async def test_another_owner_of_the_name_is_not_this_jobs() -> None:
    async with owned(job("StatefulSet"), says(owner(2, uid="another"))) as (server, of_job, events):
        with pytest.raises(CannotResize, match=r"StatefulSet train \(uid another\) does not own this ElasticJob"):
            await of_job.resize(resize(3))
        assert (server.asked, events, of_job.document) == ([("GET", STATEFUL_SET)], [], None)


async def test_an_elastic_job_without_an_owner_reads_and_resizes_no_owner() -> None:
    theirs = job("StatefulSet")
    del theirs["metadata"]["ownerReferences"]
    async with owned(theirs, says(owner(2))) as (server, of_job, events):
        with pytest.raises(CannotResize, match="does not own this ElasticJob"):
            await of_job.resize(resize(3))
        assert ([method for method, _ in server.asked], events) == (["GET"], [])


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("apiVersion", "apps/v1%2Fnamespaces%2Fvictim%2Fstatefulsets%2Fdb?x="),
        ("apiVersion", "apps/v1/namespaces/victim"),
        ("apiVersion", "apps/../v1"),
        ("apiVersion", "apps/v1?x="),
        ("apiVersion", "apps/v01"),
        ("name", "../../victim/statefulsets/db"),
        ("name", "..%2F..%2Fvictim%2Fstatefulsets%2Fdb"),
        ("name", ".."),
        ("name", "db?fieldManager=x"),
        ("name", "db#"),
        ("kind", "StatefulSet/../victim"),
    ],
)
async def test_no_text_of_adopts_leads_out_of_the_jobs_namespace(field: str, text: str) -> None:
    hostile = job("StatefulSet")
    hostile["spec"]["adopts"][field] = text
    async with owned(hostile, says(owner(2)), says(owner(3))) as (server, of_job, _):
        with pytest.raises(CannotResize):
            await of_job.resize(resize(3))
        assert server.asked == []


async def test_what_cannot_be_resized_and_what_is_refused_is_an_error() -> None:
    async with owned(job("Pod")) as (_, of_job, _events):
        with pytest.raises(CannotResize, match="Outrider cannot read the size of Pod train"):
            await of_job.resize(resize(3))
    async with owned(job("StatefulSet"), says(owner(2)), refuses(422, "Invalid", "immutable")) as (_, of_job, events):
        with pytest.raises(ApiError, match="immutable"):
            await of_job.resize(resize(3))
        assert events == []


async def test_the_elastic_job_follows_in_its_own_spec() -> None:
    async with owned(job("StatefulSet"), says({})) as (server, of_job, _):
        await of_job.follow(FollowOwner(3, Generation(1, 1), "Its owner wants it."))
        assert server.asked == [("PATCH", "/apis/outrider.dev/v1alpha1/namespaces/a/elasticjobs/train")]


async def test_an_owner_that_wants_more_than_a_job_may_have_is_not_followed() -> None:
    async with owned(job("StatefulSet")) as (server, of_job, _):
        with pytest.raises(CannotResize, match="StatefulSet train has 1000000 replicas"):
            await of_job.follow(FollowOwner(1_000_000, Generation(1, 1), "Its owner wants it."))
        assert server.asked == []


async def test_an_owner_of_more_pods_than_a_job_may_have_is_not_adopted() -> None:
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "train", "uid": "u", "controller": True}
    pod = {"metadata": {"name": "train-0", "namespace": "a", "ownerReferences": [reference]}, "spec": {}}
    huge = owner(1_000_000, "u") | {"apiVersion": "apps/v1", "kind": "StatefulSet"}
    async with unwell(says(huge), says({}, 201)) as (server, api):
        with pytest.raises(ValueError, match="1000000 pods: must not be more than the 4096 members"):
            await adopt(api, pod)
        assert [method for method, _ in server.asked] == ["GET"]


async def test_large_budgets_of_others_are_read_a_few_at_a_time_and_no_further_than_that() -> None:
    """A tenant's namespace may hold more of them than the master has memory."""
    large = {"metadata": {"name": "x", "annotations": {"a": "x" * 1_500_000}}, "spec": {"selector": {}}}
    more = says({"metadata": {"continue": "more"}, "items": [large] * 2})
    async with unwell(*[more] * 20) as (server, api):
        budgets = Budgets(api)
        assert await budgets.of(BUDGETS, "policy/v1beta1") is None
        assert len(server.asked) == 3
        assert [int(query["limit"]) for query in server.queries] == [10, 3, 1]
        assert await budgets.of(BUDGETS, "policy/v1beta1") is None
        assert len(server.asked) == 3, "it is not read again for the next job"


async def test_budgets_are_read_once_for_all_jobs_of_a_namespace_and_only_their_selectors_are_kept() -> None:
    named = {"name": "theirs", "annotations": {"a": "x" * 1000}, "ownerReferences": [{"uid": "o", "x": 1}]}
    budget = {"metadata": named, "spec": {"selector": {"matchLabels": {"a": "b"}}, "minAvailable": 1}, "status": {}}
    async with unwell(says({"items": [budget]})) as (server, api):
        budgets = Budgets(api)
        for _ in range(3):
            found = await budgets.of(BUDGETS, "policy/v1")
        assert len(server.asked) == 1
    kept = {"metadata": {"name": "theirs", "ownerReferences": [{"uid": "o"}]}, "apiVersion": "policy/v1"}
    assert found == ({**kept, "spec": {"selector": {"matchLabels": {"a": "b"}}}},)
