"""The API server is away, or hears everybody but this master: the real Fleet, its Lease, its sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outrider.master.core.k8s.values.leases import HELD
from outrider.master.kubernetes import lease, predecessors
from outrider.master.kubernetes.api.client import ApiError
from outrider.master.kubernetes.leadership import SUPERSEDED
from outrider.wire.ids import Generation
from tests.integration.kubernetes.api_server import Asked, api_server
from tests.integration.kubernetes.served_fleet import TICKETS, Member, Served, healthy, member, served
from tests.waiting import DEADLINE

LEASE = "/apis/coordination.k8s.io/v1/namespaces/outrider-system/leases/outrider-master"


@dataclass
class Clock:
    """Of the Lease."""

    later: float = 0.0

    def __call__(self) -> float:
        return lease.since_boot() + self.later


@dataclass
class Outage:
    served: Served
    member: Member
    clock: Clock
    asked: list[Asked] = field(default_factory=list)
    is_over: bool = False
    of: str = ""

    def begin(self, of: str = "") -> None:
        """From now on it is away, or takes nothing at this path, and the Lease has run out."""
        self.of, self.served.server.refuse = of, self._refuse
        self.clock.later += HELD

    def end(self) -> None:
        self.is_over = True

    def _refuse(self, asked: Asked) -> tuple[int, str] | None:
        if self.is_over or self.of not in asked.path:
            return None
        self.asked.append(asked)
        return 503, "away"

    def writes(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.method != "GET" and asked.path != LEASE]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_EVERY", 0.1)


@asynccontextmanager
async def training(folder: Path) -> AsyncIterator[Outage]:
    clock = Clock()
    async with api_server() as (server, api), served(server, api, folder, clock) as master:
        server.put_job(healthy())
        with member(master) as played:
            await played.greet()
            assert await played.trains() == Generation(1, 1)
            path = next(path for path in server.documents if path.endswith("/elasticjobs/good"))
            await server.until(lambda: (server.documents[path].get("status") or {}).get("phase") == "Running")
            yield Outage(master, played, clock)


async def test_a_killed_rank_begins_again_while_the_api_server_is_away_and_nothing_is_written(tmp_path: Path) -> None:
    async with training(tmp_path) as outage:
        server = outage.served.server
        outage.begin()
        await server.until(outage.served.is_past_its_lease)
        outage.asked.clear()
        outage.member.loses_its_rank()
        assert await outage.member.trains() == Generation(1, 2)
        assert outage.writes() == []
        outage.served.assert_lives()
        outage.end()
        path = next(path for path in server.documents if path.endswith("/elasticjobs/good"))
        await server.until(lambda: server.documents[path]["status"]["generation"] == "1.2")
        assert not outage.served.is_past_its_lease()
        outage.served.assert_lives()


async def test_nothing_is_written_past_the_lease_though_the_api_server_would_take_it(tmp_path: Path) -> None:
    async with training(tmp_path) as outage:
        outage.begin(LEASE)
        before = len(outage.served.server.asked)
        with pytest.raises(ApiError, match="not sent: the Lease of this master has run out"):
            await outage.served.fleet._api.delete("/api/v1/namespaces/team-a/pods/good-worker-0")
        assert [each for each in outage.served.server.asked[before:] if each.method == "DELETE"] == []


async def test_a_lease_that_another_has_taken_meanwhile_is_lost(tmp_path: Path) -> None:
    async with training(tmp_path) as outage:
        server = outage.served.server
        outage.begin()
        held = server.documents[LEASE]
        server.put(LEASE, {**held, "spec": {**held["spec"], "holderIdentity": "b", "leaseTransitions": 1}})
        outage.end()
        await asyncio.wait_for(outage.served.keeping, DEADLINE)


async def test_a_lease_that_is_gone_when_it_has_run_out_may_have_been_anothers(tmp_path: Path) -> None:
    async with training(tmp_path) as outage:
        outage.begin()
        del outage.served.server.documents[LEASE]
        outage.end()
        await asyncio.wait_for(outage.served.keeping, DEADLINE)


async def test_a_newer_leader_tells_the_earlier_one_which_ends(tmp_path: Path) -> None:
    async with training(tmp_path) as outage:
        outage.begin()
        ends, ours = outage.served.ends, (outage.served.endpoint, outage.served.keys.public)
        with predecessors.notified([ours[0]], ours[1], TICKETS, "b-1", term=2):
            await outage.served.server.until(lambda: ends)
        assert ends == [SUPERSEDED]


@pytest.mark.parametrize(("key", "term"), [(TICKETS, 1), (b"x" * 32, 2)], ids=["no newer", "no master"])
async def test_no_other_hello_ends_it(tmp_path: Path, key: bytes, term: int) -> None:
    async with training(tmp_path) as outage:
        refusals, fleet = list[str](), outage.served.fleet
        assert fleet.sidecars is not None
        fleet.sidecars._on_refused = lambda _member, why: refusals.append(why)
        with predecessors.notified([outage.served.endpoint], outage.served.keys.public, key, "b-1", term):
            await outage.served.server.until(lambda: refusals)
        outage.served.assert_lives()


def test_the_other_replicas_with_an_address_are_notified() -> None:
    pods = [
        {"metadata": {"name": name}, "status": {"podIP": at} if at else {}}
        for name, at in (("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", ""), ("d", "fd00::1"))
    ]
    assert predecessors.endpoints(pods, "a", 7070) == ["tcp://10.0.0.2:7070", "tcp://[fd00::1]:7070"]
