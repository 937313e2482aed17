"""Whose token is good for whom: a TokenReview's answer, read."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from outrider.master.core.events import Event
from outrider.master.core.k8s.values import session_ticket
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.auth.authn import ClusterDoor, why_refused
from outrider.master.service.sidecars import Admitted, Connection, Denied, ForGood, Verdict
from outrider.wire.ids import JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.membership import Hello
from tests.integration.kubernetes.unwell_server import refuses, says, unwell
from tests.waiting import DEADLINE

HELLO = Hello(JobName("research/digits"), MemberId("worker-0"), PodUid("u0"), Role("worker"), RankIndex(0), "a.token")
KEY = b"k" * 32


def review(**changes: object) -> Document:
    user = {
        "username": "system:serviceaccount:research:default",
        "extra": {"authentication.kubernetes.io/pod-uid": ["u0"]},
    }
    return {"authenticated": True, "audiences": ["outrider"], "user": user, **changes}


def of(username: str, *uids: str) -> Document:
    return {"username": username, "extra": {"authentication.kubernetes.io/pod-uid": list(uids)}}


def test_the_token_of_the_pod_that_says_hello_is_good() -> None:
    assert why_refused(review(), HELLO) is None


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ({"authenticated": False, "error": "token has expired"}, "was refused"),
        ({}, "was refused"),
        (review(audiences=["https://kubernetes.default.svc"]), "is not for the audience 'outrider'"),
        (review(user=of("system:serviceaccount:other:default", "u0")), "is from namespace 'other'"),
        (review(user=of("system:serviceaccount:research:default", "u9")), "is not bound to the pod with uid 'u0'"),
        (review(user=of("system:serviceaccount:research:default")), "is not bound to the pod"),
        (review(user={}), "is from namespace ''"),
    ],
)
def test_and_no_other(status: Document, sentence: str) -> None:
    denied = why_refused(status, HELLO)
    assert denied is not None
    assert sentence in denied.reason


def test_what_the_api_server_says_of_a_token_is_for_the_log_alone() -> None:
    denied = why_refused({"authenticated": False, "error": "token has expired\nand more"}, HELLO)
    assert denied == Denied("the token of 'worker-0' was refused", "token", r"'token has expired\nand more'")


async def asked(hello: Hello, *answers: object) -> tuple[Verdict, int]:
    """The verdict, and how often the API server was asked."""
    verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()

    def put(_event: Event) -> None:
        raise AssertionError

    async with unwell(*answers) as (server, api):  # type: ignore[arg-type]
        door = ClusterDoor(api, KEY, lambda said: put if said.job == HELLO.job else None)
        door.admit(hello, verdict.set_result, Connection("10.0.0.1"))
        return await asyncio.wait_for(verdict, DEADLINE), len(server.asked)


async def test_a_good_token_is_asked_about_once_and_its_ticket_not_at_all() -> None:
    admitted, times = await asked(HELLO, says({"status": review()}))
    assert isinstance(admitted, Admitted)
    assert times == 1
    again = replace(HELLO, token="", ticket=admitted.ticket())
    assert session_ticket.is_good(KEY, again, time.time())
    admitted, times = await asked(again)
    assert isinstance(admitted, Admitted)
    assert times == 0


async def test_only_a_member_of_its_namespace_learns_whether_a_job_exists() -> None:
    other = replace(HELLO, job=JobName("research/other"))
    verdict, times = await asked(other, says({"status": review()}))
    assert "no job 'research/other'" in str(verdict)
    assert times == 1
    for job in ("research/other", "research/digits"):
        stranger, _ = await asked(replace(HELLO, job=JobName(job)), says({"status": {"authenticated": False}}))
        assert isinstance(stranger, Denied)
        assert stranger.reason == "the token of 'worker-0' was refused"


async def test_who_waits_for_its_job_over_one_connection_proves_once_who_it_is() -> None:
    async with unwell(says({"status": review()})) as (server, api):
        door, connection = ClusterDoor(api, KEY, lambda _hello: None), Connection("10.0.0.1")
        for _ in range(3):
            verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
            door.admit(HELLO, verdict.set_result, connection)
            assert "no job" in str(await asyncio.wait_for(verdict, DEADLINE))
        assert len(server.asked) == 1


async def test_a_job_that_is_over_is_refused_for_good() -> None:
    verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
    async with unwell(says({"status": review()})) as (_server, api):
        door = ClusterDoor(api, KEY, lambda _hello: ForGood("it is over"))
        door.admit(HELLO, verdict.set_result, Connection("10.0.0.1"))
        assert isinstance(await verdict, ForGood)


async def test_an_api_server_that_does_not_answer_is_no_reason_to_believe() -> None:
    verdict, _ = await asked(HELLO, *[refuses(500, message="down")] * 4)
    assert "could not review the token" in str(verdict)
