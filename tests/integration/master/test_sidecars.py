"""Who may speak to a master, over real ZeroMQ: strangers are refused in a sentence, and nobody else notices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgpack
import pytest

from outrider.master.core.events import Event, SidecarDisconnected, SidecarSaid
from outrider.master.service.sidecars import (
    HEARD_AGAIN,
    MESSAGES,
    MESSAGES_A_SECOND,
    OF_STRANGER,
    Connection,
    Decide,
    Door,
    ForGood,
    Sidecars,
    TokenDoor,
)
from outrider.runtime.curve_keys import KeyPair, new_key_pair
from outrider.runtime.sockets import Unreachable
from outrider.wire.codec import encode
from outrider.wire.ids import Generation, JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Exited, WorkerExit
from outrider.wire.messages.membership import Hello, Refused, Welcome
from outrider.wire.messages.report import Report
from tests.integration.master.peer import peers
from tests.waiting import DEADLINE, until

HELLO = Hello(JobName("digits"), MemberId("worker-0"), PodUid("u0"), Role("worker"), RankIndex(0), "right")
REPORT = Report(Generation(1, 1), "running", step=7)


class Served:
    """A master's end, and what came of it."""

    def __init__(self, keys: KeyPair, door: Door | None = None) -> None:
        self.events: list[Event] = []
        self.refusals: list[tuple[MemberId | None, str]] = []
        self.keys = keys
        door = door or TokenDoor(JobName("digits"), "right", self.events.append)
        self.sidecars = Sidecars(keys, door, lambda member, why: self.refusals.append((member, why)))
        self.endpoint = self.sidecars.bind("tcp://127.0.0.1:*")

    async def until(self, claim: Callable[[], bool]) -> None:
        await until(claim)

    async def said(self, count: int) -> list[SidecarSaid]:
        await self.until(lambda: sum(isinstance(event, SidecarSaid) for event in self.events) >= count)
        return [event for event in self.events if isinstance(event, SidecarSaid)]


@contextmanager
def served(door: Door | None = None) -> Iterator[Served]:
    master = Served(new_key_pair(), door)
    try:
        yield master
    finally:
        master.sidecars.close()


async def test_a_member_is_heard_after_its_hello_and_answered_on_its_session() -> None:
    with served() as master, peers(master.endpoint, master.keys, 1) as (peer,):
        peer.say(encode(HELLO))
        peer.say(encode(REPORT))
        hello, report = await master.said(2)
        assert (hello.message, report.message) == (HELLO, REPORT)
        assert hello.session == report.session
        master.sidecars.send(hello.session, Welcome(3))
        assert await peer.hear() == Welcome(3)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (encode(replace(HELLO, token="wrong")), "the token of 'worker-0' is not that of this run of job 'digits'"),
        (encode(replace(HELLO, token="\udcff")), "the token of 'worker-0' is not that"),
        (encode(replace(HELLO, job=JobName("other"))), "this is the master of job 'digits', not of 'other'"),
        (encode(HELLO)[:-4], "must be a complete msgpack map"),
        (b"\x00\xff" * 50, "must be a complete msgpack map"),
        (b"", "must be a complete msgpack map"),
        (b"x" * OF_STRANGER[4], "must be a complete msgpack map"),
        (msgpack.packb({"message": "Dance", "version": 99}), "'Dance': must be a message from a sidecar"),
        (msgpack.packb({"message": "Hello", "job": 7}), "Hello.job: Invalid value: 7: must be text"),
        (encode(Welcome(1)), "'Welcome': must be a message from a sidecar"),
    ],
)
async def test_a_stranger_is_refused_in_a_sentence_and_nobody_else_notices(data: bytes, sentence: str) -> None:
    with served() as master, peers(master.endpoint, master.keys, 2) as (member, stranger):
        member.say(encode(HELLO))
        await master.said(1)
        stranger.say(data)
        answer = await stranger.hear()
        assert isinstance(answer, Refused)
        assert sentence in answer.reason
        assert [sentence in why for _, why in master.refusals] == [True]
        member.say(encode(REPORT))
        assert [event.message for event in await master.said(2)] == [HELLO, REPORT]


async def test_what_comes_before_the_hello_is_passed_over_and_no_user_hears_of_it() -> None:
    """A report that was on its way when the link broke: over the next one it comes first."""
    with served() as master, peers(master.endpoint, master.keys, 1) as (peer,):
        for _ in range(3):
            peer.say(encode(REPORT))
        assert await peer.hear() == Refused("this connection has not sent Hello yet", 0.0)
        peer.say(encode(HELLO))
        peer.say(encode(REPORT))
        assert [event.message for event in await master.said(2)] == [HELLO, REPORT]
        assert master.refusals == []


async def test_a_refused_connection_may_say_hello_again_with_the_right_token() -> None:
    with served() as master, peers(master.endpoint, master.keys, 1) as (peer,):
        peer.say(encode(replace(HELLO, token="wrong")))
        assert isinstance(await peer.hear(), Refused)
        peer.say(encode(HELLO))
        assert [event.message for event in await master.said(1)] == [HELLO]


class Closed:
    """The door behind which a job is over."""

    def admit(self, hello: Hello, decide: Decide, of: Connection) -> None:
        decide(ForGood(f"job {hello.job!r} is over"))


async def test_who_is_refused_for_good_is_told_not_to_ask_again() -> None:
    with served(Closed()) as master, peers(master.endpoint, master.keys, 1) as (peer,):
        peer.say(encode(HELLO))
        assert await peer.hear() == Refused("job 'digits' is over", -1.0)


async def test_a_hello_that_was_held_up_does_not_take_its_member_from_a_newer_connection() -> None:
    with served() as master, peers(master.endpoint, master.keys, 2) as (older, newer):
        older.say(encode(HELLO))
        (first,) = await master.said(1)
        newer.say(encode(HELLO))
        _, second = await master.said(2)
        master.sidecars.close_session(first.session)
        older.say(encode(HELLO))
        older.say(b"nonsense")
        newer.say(encode(REPORT))
        newer.say(encode(HELLO))
        said = await master.said(4)
        assert [event.session for event in said] == [first.session, *[second.session] * 3]
        assert master.refusals == []
        newer.close()
        await master.until(lambda: SidecarDisconnected(second.session) in master.events)
        older.say(encode(HELLO))
        assert (await master.said(5))[-1].message == HELLO


async def test_a_flood_of_nonsense_is_announced_once() -> None:
    with served() as master, peers(master.endpoint, master.keys, 2) as (member, stranger):
        for _ in range(200):
            stranger.say(b"nonsense")
        member.say(encode(HELLO))
        await master.said(1)
        for _ in range(OF_STRANGER[0]):
            assert isinstance(await stranger.hear(), Refused)
        assert len(master.refusals) == 1


FLOODS = {
    "reports": lambda n: encode(replace(REPORT, step=n)),
    "tracebacks": lambda n: encode(Exited(Generation(1, 1), (WorkerExit(0, n, 1, None, traceback="x" * 8000),), 0)),
    "nonsense": lambda n: b"\x93" * (1000 + n % 7),
    "large nonsense": lambda n: b"\xc1" * 500_000,
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_member_that_floods_its_master_is_hung_up_and_its_neighbour_is_heard(kind: str) -> None:
    with served() as master, peers(master.endpoint, master.keys, 2) as (peer, neighbour):
        neighbour.say(encode(replace(HELLO, member=MemberId("worker-1"))))
        peer.say(encode(HELLO))
        await master.said(2)
        sent, began = 0, time.monotonic()
        async with asyncio.timeout(DEADLINE):
            while not master.sidecars.refused["flood"]:
                for _ in range(50):
                    peer.say_if_it_can(FLOODS[kind](sent))
                    sent += 1
                await asyncio.sleep(0.001)
        heard = [event for event in master.events if isinstance(event, SidecarSaid)]
        assert len(heard) < 2 * MESSAGES + MESSAGES_A_SECOND * (time.monotonic() - began) + 200
        neighbour.say(encode(REPORT))
        await master.until(lambda: any(isinstance(e, SidecarSaid) and e.message == REPORT for e in master.events))
        await master.until(lambda: any(isinstance(event, SidecarDisconnected) for event in master.events))
        assert any("has sent too much" in why for _, why in master.refusals)


async def test_who_was_hung_up_for_a_flood_is_not_heard_again_before_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as master, peers(master.endpoint, master.keys, 2) as (peer, again):
        peer.say(encode(HELLO))
        await master.said(1)
        async with asyncio.timeout(60):
            while not master.sidecars.refused["flood"]:
                peer.say_if_it_can(FLOODS["tracebacks"](1))
                await asyncio.sleep(0)
        again.say(encode(HELLO))
        answer = await again.hear()
        assert isinstance(answer, Refused)
        assert (answer.retry_after, "served again in 15 s" in answer.reason) == (HEARD_AGAIN, True)
        later = time.monotonic() + 2 * HEARD_AGAIN
        monkeypatch.setattr("outrider.master.service.sidecars.monotonic", lambda: later)
        again.say(encode(HELLO))
        await master.until(lambda: sum(isinstance(e, SidecarSaid) and e.message == HELLO for e in master.events) == 2)


async def test_a_stranger_that_says_more_than_a_hello_can_be_is_hung_up_unread() -> None:
    with served() as master, peers(master.endpoint, master.keys, 1) as (peer,):
        peer.say(b"x" * (OF_STRANGER[4] + 1))
        await master.until(lambda: master.sidecars.refused["flood"] == 1)
        assert not master.sidecars.refused["unreadable"]


async def test_a_stranger_may_say_little_and_then_is_hung_up() -> None:
    with served() as master, peers(master.endpoint, master.keys, 1) as (peer,):
        async with asyncio.timeout(60):
            while not master.sidecars.refused["flood"]:
                peer.say_if_it_can(encode(replace(HELLO, token="wrong")))
                await asyncio.sleep(0)
        assert master.events == []


async def test_a_frame_of_many_mebibytes_ends_its_own_connection_only() -> None:
    with served() as master, peers(master.endpoint, master.keys, 2) as (member, stranger):
        member.say(encode(HELLO))
        stranger.say(encode(replace(HELLO, member=MemberId("worker-1"))))
        first, second = await master.said(2)
        named = {event.message.member: event.session for event in (first, second) if isinstance(event.message, Hello)}
        stranger.say(b"x" * (64 << 20))
        await master.until(lambda: SidecarDisconnected(named[MemberId("worker-1")]) in master.events)
        member.say(encode(REPORT))
        assert (await master.said(3))[-1].session == named[MemberId("worker-0")]


async def test_a_newer_version_with_a_message_nobody_knows_keeps_its_session() -> None:
    with served() as master, peers(master.endpoint, master.keys, 1) as (peer,):
        peer.say(encode(HELLO))
        peer.say(msgpack.packb({"message": "Telepathy", "thought": 1}))
        peer.say(encode(REPORT))
        assert [event.message for event in await master.said(2)] == [HELLO, REPORT]
        assert master.refusals[0][0] == "worker-0"


async def test_two_connections_of_one_identity_are_two_sessions() -> None:
    with served() as master, peers(master.endpoint, master.keys, 2) as (first, second):
        first.say(encode(HELLO))
        await master.said(1)
        second.say(encode(HELLO))
        one, other = await master.said(2)
        assert one.session != other.session


async def test_a_connection_cannot_become_another_member() -> None:
    with served() as master, peers(master.endpoint, master.keys, 1) as (peer,):
        peer.say(encode(HELLO))
        peer.say(encode(replace(HELLO, member=MemberId("worker-1"))))
        answer = await peer.hear()
        assert isinstance(answer, Refused)
        assert "this connection belongs to worker-0" in answer.reason
        assert [event.message for event in await master.said(1)] == [HELLO]


async def test_a_closed_session_is_not_heard_until_it_says_hello_again_as_a_new_one() -> None:
    with served() as master, peers(master.endpoint, master.keys, 1) as (peer,):
        peer.say(encode(HELLO))
        (first,) = await master.said(1)
        master.sidecars.close_session(first.session)
        with pytest.raises(Unreachable):
            master.sidecars.send(first.session, Welcome(1))
        peer.say(encode(REPORT))
        peer.say(encode(HELLO))
        told = await master.said(2)
        assert told[1].message == HELLO
        assert told[1].session != first.session


async def test_the_end_of_a_connection_is_told_with_its_session() -> None:
    with served() as master, peers(master.endpoint, master.keys, 2) as (first, second):
        first.say(encode(HELLO))
        await master.said(1)
        second.say(encode(replace(HELLO, member=MemberId("worker-1"))))
        one, _other = await master.said(2)
        first.close()
        await master.until(lambda: SidecarDisconnected(one.session) in master.events)
        assert sum(isinstance(event, SidecarDisconnected) for event in master.events) == 1
