"""What a stranger with the public key costs: real ZeroMQ, and an API server over real HTTP says whose a token is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider.master.core.events import Event, SidecarSaid
from outrider.master.core.k8s.values import session_ticket
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.auth import authn, token_reviews
from outrider.master.kubernetes.auth.authn import REVIEWS, ClusterDoor
from outrider.master.kubernetes.auth.token_reviews import Question, Reviews
from outrider.master.service.refused_connections import LINES, SECONDS, RefusalLog
from outrider.master.service.sidecars import Sidecars
from outrider.runtime.curve_keys import new_key_pair
from outrider.wire.codec import encode
from outrider.wire.ids import Generation, JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.membership import Hello, Refused
from outrider.wire.messages.report import Report
from tests.integration.kubernetes.api_server import api_server
from tests.integration.kubernetes.document_server import DocumentServer, having
from tests.integration.kubernetes.served_fleet import healthy, member, served
from tests.integration.master.peer import Peer, peers
from tests.waiting import until

KEY = b"k" * 32
HELLO = Hello(JobName("team-a/good"), MemberId("worker-0"), PodUid("u0"), Role("worker"), RankIndex(0), "good")
WRONG = replace(HELLO, member=MemberId("Buy at evil.example"), token="wrong")
MESSAGES = 15


def whose(spec: Document) -> Document:
    if spec["token"] != "good":
        return {"authenticated": False, "error": "secret words of the API server"}
    user = {"username": "system:serviceaccount:team-a:x", "extra": {"authentication.kubernetes.io/pod-uid": ["u0"]}}
    return {"authenticated": True, "audiences": ["outrider"], "user": user}


class Master:
    """Its end of the sidecars, and what came of it."""

    def __init__(self, server: DocumentServer, sidecars: Sidecars, events: list[Event], logged: list[str]) -> None:
        self.server, self.sidecars, self.events, self.logged = server, sidecars, events, logged
        self.endpoint = sidecars.bind("tcp://127.0.0.1:*")

    def reviews(self) -> int:
        return self.server.asked.count(("POST", REVIEWS))

    async def until(self, claim: Callable[[], Any]) -> None:
        await until(claim)

    def said(self) -> list[SidecarSaid]:
        return [event for event in self.events if isinstance(event, SidecarSaid)]


KEYS = new_key_pair()


@asynccontextmanager
async def master() -> AsyncIterator[Master]:
    async with having({}) as (server, api):
        server.reviews = {REVIEWS: whose}
        events, logged = list[Event](), list[str]()
        ours = ClusterDoor(api, KEY, lambda _hello: events.append)
        sidecars = Sidecars(KEYS, ours, lambda _member, why: logged.append(why))
        try:
            yield Master(server, sidecars, events, logged)
        finally:
            server.ends.set()
            await _give_up(ours._reviews)
            sidecars.close()


async def _give_up(line: Reviews) -> None:
    line._waiting.clear()
    tasks = list(line._tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_many_hellos_with_a_wrong_token_are_one_review_and_a_member_is_admitted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(authn, "RETRY_AFTER", 60.0)  # longer than the test
    async with master() as ours:
        with peers(ours.endpoint, KEYS, 2) as (stranger, real):
            for _ in range(MESSAGES):
                stranger.say(encode(WRONG))
            real.say(encode(HELLO))
            await ours.until(ours.said)
            await _asks_in_vain(ours, stranger)
            assert ours.server.asked.count(("POST", REVIEWS)) == 2
            assert ours.said()[0].message == HELLO
            assert len(ours.logged) == 1


async def _asks_in_vain(ours: Master, stranger: Peer) -> None:
    """It is ordered to wait, and no token is reviewed."""
    heard = [await stranger.hear()]
    assert heard == [Refused("the token of 'Buy at evil.example' was refused", 60.0)]
    assert "secret words" in ours.logged[0]
    for _ in range(MESSAGES):
        stranger.say(encode(WRONG))
        answer = await stranger.hear()
        assert isinstance(answer, Refused)
        assert answer.retry_after > 0
    assert ours.sidecars.refused["token"] == 1
    assert ours.sidecars.refused["early"] >= MESSAGES


async def test_a_second_hello_waits_for_the_first_ones_answer_and_the_newest_words_count() -> None:
    async with master() as ours:
        answer = asyncio.Event()
        ours.server.before_reviewing = lambda _spec: answer.wait()
        with peers(ours.endpoint, KEYS, 2) as (peer, other):
            newer = replace(HELLO, term=7)
            for hello in (HELLO, newer, replace(HELLO, token="another")):
                peer.say(encode(hello))
            other.say(b"nonsense")
            await ours.until(lambda: ours.sidecars.refused["early"] and ours.sidecars.refused["unreadable"])
            answer.set()
            await ours.until(ours.said)
            assert [event.message for event in ours.said()] == [newer]
            assert ours.reviews() == 1


async def test_who_has_a_ticket_waits_behind_no_review() -> None:
    async with master() as ours:
        ours.server.before_reviewing = _hangs_for("wrong", ours.server.ends)
        with peers(ours.endpoint, KEYS, token_reviews.AT_ONCE + 1) as (member, *strangers):
            for stranger in strangers:
                stranger.say(encode(WRONG))
            await ours.until(ours.reviews)
            member.say(encode(replace(HELLO, token="", ticket=session_ticket.issue(KEY, HELLO, time.time()))))
            await ours.until(ours.said)


async def test_a_stranger_with_many_connections_delays_no_other_address() -> None:
    """The API server answers no question about him: each address has its own turns."""
    async with master() as ours:
        ours.server.before_reviewing = _hangs_for("wrong", ours.server.ends)
        strangers = peers(ours.endpoint, KEYS, 40, "127.0.0.66")
        with strangers as many, peers(ours.endpoint, KEYS, 1) as (real,):
            for stranger in many:
                stranger.say(encode(WRONG))
            await ours.until(lambda: ours.reviews() >= token_reviews.OF_AN_ADDRESS)
            real.say(encode(HELLO))
            await ours.until(ours.said)
            assert ours.reviews() == token_reviews.OF_AN_ADDRESS + 1


def _hangs_for(token: str, end: asyncio.Event) -> Callable[[Document], Any]:
    async def wait(spec: Document) -> None:
        if spec["token"] == token:
            await end.wait()

    return wait


async def test_a_strangers_words_are_in_no_event_of_the_job_that_he_names(tmp_path: Path) -> None:
    async with api_server() as (server, api), served(server, api, tmp_path) as fleet:
        server.put_job(healthy())
        with member(fleet) as real, peers(fleet.endpoint, fleet.keys, 1) as (stranger,):
            await real.greet()
            hello = replace(WRONG, token="team-b@u0")
            stranger.say(encode(hello))
            assert isinstance(refused := await stranger.hear(), Refused)
            assert "from namespace 'team-b'" in refused.reason
            real._say(Report(Generation(0, 0), "ready"))
            await real.trains()
            await server.until(lambda: server.all("/events/"), lambda: "no Event of the job was ever written")
            assert "evil.example" not in repr([each for each in server.asked if "event" in each.path])
            assert "SidecarRejected" not in repr(server.all("/events/"))
            assert fleet.fleet.sidecars is not None
            assert fleet.fleet.sidecars.refused["token"] == 1


async def test_a_full_line_takes_the_places_of_who_has_most_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_reviews, "WAITING", 3)
    monkeypatch.setattr(token_reviews, "OF_AN_ADDRESS", 0)
    line, given_up, gone = Reviews(), list[str](), set[str]()

    def put(name: str, address: str) -> None:
        async def ask() -> bool:
            return True

        line.put(Question(address, ask, lambda: name in gone, lambda: given_up.append(name)))

    for name in ("a1", "a2", "a3", "a4"):
        put(name, "a")
    assert given_up == ["a4"], "the line is his alone"
    put("b1", "b")
    assert given_up == ["a4", "a3"]
    gone.add("a2")
    put("c1", "c")
    assert given_up == ["a4", "a3"], "who has gone needs no place"


def test_the_log_of_refusals_is_a_few_lines_and_says_how_many_it_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = RefusalLog(lambda: now[0])
    for _ in range(LINES + 5):
        log(None, "nonsense")
    assert len(caplog.records) == LINES
    now[0] = SECONDS
    log(MemberId("worker-0"), "more nonsense")
    assert [record.getMessage() for record in caplog.records[LINES:]] == [
        "5 more connections were refused; each was sent the reason",
        "more nonsense",
    ]
