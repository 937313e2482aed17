"""The real Fleet, its sockets and its Lease, against an API server over real HTTP; a member's sidecar is played."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api
from outrider.master.kubernetes.auth.authn import ClusterDoor
from outrider.master.kubernetes.controller import Fleet
from outrider.master.kubernetes.job_attempts import BEGIN_AGAIN
from outrider.master.kubernetes.lease import Lease, since_boot
from outrider.master.service.refused_connections import RefusalLog
from outrider.master.service.sidecars import Sidecars
from outrider.runtime.curve_keys import KeyPair, new_key_pair
from outrider.wire.codec import encode
from outrider.wire.ids import Generation, JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.directions import FromMaster
from outrider.wire.messages.generation import Exited, Ready, Start, Started, Stepped, Stop, Stopped, WorkerExit
from outrider.wire.messages.membership import Hello, Welcome
from outrider.wire.messages.report import Report
from tests.integration.kubernetes.api_server import ApiServer
from tests.integration.master.peer import Peer, peers
from tests.unit.master.core.k8s.documents import job, worker

TICKETS = b"k" * 32
GOOD = "/api/v1/namespaces/team-a/pods/good-worker-0"


@dataclass
class Served:
    server: ApiServer
    fleet: Fleet
    keys: KeyPair
    endpoint: str
    running: asyncio.Task[None]
    keeping: asyncio.Task[None]
    """Of the Lease."""
    ends: list[int] = field(default_factory=list)
    """Codes with which the process would have ended."""

    def is_past_its_lease(self) -> bool:
        """Its only job knows that."""
        (job,) = self.fleet.running.values()
        return job.state.lease.lapsed  # type: ignore[union-attr]

    def assert_lives(self) -> None:
        assert not self.running.done(), self.running
        assert self.ends == []


@asynccontextmanager
async def served(
    server: ApiServer,
    api: Api,
    folder: Path,
    clock: Callable[[], float] = since_boot,
    begin_again: float = BEGIN_AGAIN,
) -> AsyncIterator[Served]:
    keys, ends = new_key_pair(), list[int]()
    of_lease = api.apart()
    lease = Lease(of_lease, "outrider-master", "outrider-system", "a", clock)
    term = await lease.acquire()
    policy = Policy("outrider/sidecar:1", "IfNotPresent", "tcp://master:7070", keys.public)
    fleet = Fleet(api, term, policy, folder, lease, ends.append, begin_again=begin_again)
    fleet.sidecars = Sidecars(keys, ClusterDoor(api, TICKETS, fleet.inbox, fleet.leadership.superseded), RefusalLog())
    endpoint = fleet.sidecars.bind("tcp://127.0.0.1:*")
    tasks = [asyncio.ensure_future(each) for each in (fleet.run(), lease.keep())]
    try:
        yield Served(server, fleet, keys, endpoint, *tasks, ends)
    finally:
        left = [*tasks, *fleet._background.tasks]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        fleet.sidecars.close()
        await of_lease.close()


def healthy() -> Document:
    """A job of one member, in a namespace of its own."""
    found = job({"worker": worker(replicas=1)}, "good")
    found["metadata"] = {"name": "good", "namespace": "team-a", "uid": "good-uid", "generation": 1}
    return found


class Member:
    """The sidecar of `healthy`'s only pod, as the master hears it."""

    def __init__(self, served: Served, peer: Peer) -> None:
        self._served, self._peer = served, peer
        self.generation = Generation(0, 0)
        self._step = 0
        self._alive = asyncio.ensure_future(self._reports())

    async def _reports(self) -> None:
        """Reports with steps, so that the member does not look hung."""
        while True:
            await asyncio.sleep(1.0)
            if self.generation.number:
                self._step += 1
                self._say(Report(self.generation, "running", self._step))

    def close(self) -> None:
        self._alive.cancel()

    async def greet(self) -> None:
        """The pod is there and runs; its sidecar says Hello."""
        server = self._served.server
        pod = await server.until(lambda: server.documents.get(GOOD), lambda: "the healthy job has no pod")
        status = {"name": "main", "state": {"running": {}}, "restartCount": 0}
        server.put(GOOD, {**pod, "metadata": dict(pod["metadata"]),
                          "status": {"phase": "Running", "containerStatuses": [status]}})  # fmt: skip
        uid = PodUid(pod["metadata"]["uid"])
        hello = Hello(JobName("team-a/good"), MemberId("worker-0"), uid, Role("worker"), RankIndex(0), f"team-a@{uid}")
        await self._until(Welcome, encode(hello))
        self._say(Ready(20000, 1, "T0", "played", 7))

    async def trains(self) -> Generation:
        """In the next generation, from now on."""
        start = await self._until(Start)
        self.generation = start.generation
        self._say(Started(start.order, start.generation, (8,)))
        self._step = start.high_step + 1
        self._say(Stepped(start.generation, self._step, 0.0))
        return self.generation

    def loses_its_rank(self) -> None:
        self._say(Exited(self.generation, (WorkerExit(0, 8, None, 9),), 0))
        self._say(Ready(20001, 1, "T0", "played", 7, self.generation))

    def _say(self, message: Any) -> None:
        self._peer.say(encode(message))

    async def _until(self, kind: type[Any], again: bytes = b"") -> Any:
        """The next message of this kind. `again` is said until it is answered: the job may not have begun here yet."""
        if again:
            self._peer.say(again)
        while not isinstance(heard := await self._peer.hear(), kind):
            self._answer(heard)
            if again and type(heard).__name__ == "Refused":
                await asyncio.sleep(0.05)
                self._peer.say(again)
        return heard

    def _answer(self, heard: FromMaster) -> None:
        if isinstance(heard, Stop):
            self._say(Stopped(heard.order, heard.generation))
            self._say(Ready(20001, 1, "T0", "played", 7, heard.generation))


@contextlib.contextmanager
def member(served: Served) -> Any:
    with peers(served.endpoint, served.keys, 1) as (peer,):
        played = Member(served, peer)
        try:
            yield played
        finally:
            played.close()
