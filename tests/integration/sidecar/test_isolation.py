"""A real sidecar whose neighbours and whose master fall silent, by real sockets."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from outrider.sidecar.shell.peer_probes import ANSWER, QUESTION, Probes
from outrider.wire.ids import Generation, MemberId, OrderId
from outrider.wire.messages.generation import Ready, Started, Stop
from outrider.wire.messages.links import LinkSeen, Neighbour, Ping, Pong
from outrider.wire.messages.membership import Finish, Hello, Welcome
from outrider.wire.messages.report import Report
from tests.integration.sidecar.bench import DEADLINE, Hook, Master, Member, member, start_order, template

FIRST, SECOND = Generation(1, 1), Generation(1, 2)
PATIENCE = 20.0
"""Seconds where nothing has to be stopped: on a busy machine this process may not answer for some of them."""


class Peer(asyncio.DatagramProtocol):
    """Another member's sidecar, as far as probes go."""

    def __init__(self) -> None:
        self.answers = True
        self.asked = asyncio.Event()
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        if self.answers:
            self._transport.sendto(ANSWER + data[len(QUESTION) :], addr)
            self.asked.set()

    async def is_asked_again(self) -> None:
        self.asked.clear()
        async with asyncio.timeout(DEADLINE):
            await self.asked.wait()


@asynccontextmanager
async def peers(count: int) -> AsyncIterator[tuple[list[Peer], tuple[Neighbour, ...]]]:
    loop, transports, found = asyncio.get_running_loop(), [], []
    for _ in range(count):
        transport, peer = await loop.create_datagram_endpoint(Peer, local_addr=("127.0.0.1", 0))
        transports.append(transport)
        found.append(peer)
    places = [transport.get_extra_info("sockname") for transport in transports]
    named = tuple(Neighbour(MemberId(f"worker-{i + 1}"), *place) for i, place in enumerate(places))
    try:
        yield found, named
    finally:
        for transport in transports:
            transport.close()


async def trains(master: Master, sidecar: Member, neighbours: tuple[Neighbour, ...]) -> Hook:
    hook = await sidecar.hook()
    hook.say(template())
    ready = await master.hears(Ready)
    master.send(replace(start_order(1, FIRST, ready.port), neighbours=neighbours))
    await hook.hears("do")
    hook.say({"event": "started", "generation": [1, 1], "pids": [101, 102]})
    await master.hears(Started)
    return hook


async def test_it_stops_its_workers_without_any_answer_and_joins_the_next_generation_when_the_master_is_back() -> None:
    async with peers(2) as (others, neighbours), member(Welcome(1, silent_after=2.0)) as (master, sidecar):
        hook = await trains(master, sidecar, neighbours)
        for peer in others:
            await peer.is_asked_again()
            peer.answers = False
        await master.hears(Ping)  # and gets no answer: the link is up and dead
        order = await hook.hears("do")
        assert (order["do"], order["generation"], order["save_grace"]) == ("stop", [1, 1], 0.0)
        hello = await master.hears(Hello)
        assert "neither the master nor worker-1, worker-2 could be reached" in hello.isolated
        hook.say({"event": "stopped", "generation": [1, 1], "killed": 0})
        ready = await master.hears(Ready)
        assert ready.after == FIRST
        master.send(replace(start_order(2, SECOND, ready.port), neighbours=neighbours))
        assert (await hook.hears("do"))["generation"] == [1, 2]


async def test_a_master_that_answers_is_company_enough() -> None:
    async with peers(1) as (others, neighbours), member(Welcome(1, silent_after=PATIENCE)) as (master, sidecar):
        hook = await trains(master, sidecar, neighbours)
        await others[0].is_asked_again()
        others[0].answers = False
        for _ in range(int(PATIENCE) + 3):  # it asks at most once a second: longer than its patience
            master.send(Pong((await master.hears(Ping)).number))
        master.send(Stop(OrderId(7), FIRST, grace=1.5))
        assert (await hook.hears("do"))["grace"] == 1.5  # the first stop that it was ordered


async def test_a_sidecar_that_was_stopped_for_longer_than_its_patience_stops_nothing() -> None:
    async with peers(1) as (others, neighbours), member(Welcome(1, silent_after=PATIENCE)) as (master, sidecar):
        hook = await trains(master, sidecar, neighbours)
        await others[0].is_asked_again()
        os.kill(sidecar.pid, signal.SIGSTOP)
        await asyncio.sleep(PATIENCE + 2.0)  # this is the fault: nothing is waited for
        os.kill(sidecar.pid, signal.SIGCONT)
        await others[0].is_asked_again()
        await master.hears(Report)
        master.send(Stop(OrderId(7), FIRST, grace=1.5))
        assert (await hook.hears("do"))["grace"] == 1.5


@pytest.mark.parametrize(
    ("address", "bound"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("127.0.0.1", "192.0.2.1"), ("::1", "2001:db8::1")],
    ids=["IPv4", "IPv6", "IPv4, on all addresses", "IPv6, on all addresses"],
)
async def test_a_neighbour_that_leaves_says_so_and_is_not_missed(tmp_path: Path, address: str, bound: str) -> None:
    """`bound`: its configured address; the last two are not addresses of this machine."""
    heard: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    here = await Probes.open(bound, tmp_path / "here", lambda *place: heard.put_nowait(place))
    there = await Probes.open(bound, tmp_path / "there", lambda *_place: None)
    port = there.port
    try:
        assert (await here.reach(address, port, DEADLINE)).came
        there.say_farewell()
        async with asyncio.timeout(DEADLINE):
            assert await heard.get() == (address, port)
    finally:
        here.close()
        there.close()


async def test_a_restarted_sidecar_is_found_where_the_one_before_it_was() -> None:
    async with member() as (master, sidecar):
        first = await master.hears(Hello)
        await sidecar.kill()
        await master.loses_the_link()
        await sidecar.start()
        assert (await master.hears(Hello)).probe_port == first.probe_port


async def test_its_own_end_is_announced_to_those_that_probed_it() -> None:
    """With two real sidecars: the first gets Finish while the second probes it."""
    async with member() as (master, one):
        neighbour = Neighbour(MemberId("worker-0"), "127.0.0.1", (await master.hears(Hello)).probe_port)
        heard: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        other = await Probes.open("127.0.0.1", one.folder / "other", lambda *place: heard.put_nowait(place))
        try:
            assert (await other.reach(neighbour.address, neighbour.port, DEADLINE)).came
            await one.obedient_trainer()
            await master.hears(Ready)
            master.send(Finish(OrderId(1), 0, "the job is over"))
            async with asyncio.timeout(DEADLINE):
                assert await heard.get() == (neighbour.address, neighbour.port)
        finally:
            other.close()


class Forgetful(asyncio.DatagramProtocol):
    """It answers the second question that it gets, and each later one; the first only after that."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        self.asked.append(data)
        if len(self.asked) > 1:
            self._transport.sendto(ANSWER + data[len(QUESTION) :], addr)
            self._transport.sendto(ANSWER + self.asked[0][len(QUESTION) :], addr)


async def test_a_round_trip_is_that_of_the_datagram_that_was_answered_and_those_before_it_are_lost(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()
    transport, peer = await loop.create_datagram_endpoint(Forgetful, local_addr=("127.0.0.1", 0))
    here = await Probes.open("127.0.0.1", tmp_path / "here", lambda *_place: None)
    try:
        echo = await here.reach(*transport.get_extra_info("sockname"), 9.0)
        assert (echo.came, echo.lost, len(peer.asked)) == (True, 1, 2)
        assert 0 < echo.round_trip < 3.0, "not since the first one was sent"
        transport.close()
        nobody = await here.reach(*transport.get_extra_info("sockname"), 0.3)
        assert (nobody.came, nobody.lost) == (False, 3)
    finally:
        here.close()
        transport.close()


async def test_its_reports_say_how_its_neighbours_answer() -> None:
    async with peers(2) as (others, neighbours), member(Welcome(1)) as (master, sidecar):
        await trains(master, sidecar, neighbours)

        async def told(claim: Callable[[LinkSeen], bool]) -> LinkSeen:
            while True:
                for link in (await master.hears(Report)).links:
                    if link.member == "worker-1" and claim(link):
                        return link

        well = await told(lambda link: link.sent > 0 and link.missing == 0.0)
        assert well.round_trip > 0
        others[0].answers = False
        gone = await told(lambda link: link.missing > 0)
        assert gone.lost >= 3
        others[0].answers = True
        await told(lambda link: link.missing == 0.0)
