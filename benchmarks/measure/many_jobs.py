"""A real master of a cluster beside an API server that is played, with many jobs that all train.

`python -m outrider.master` with the shell for Kubernetes, real links with CURVE, and over HTTP the API server of the
tests, which keeps its documents in memory. The sidecars are played here. An hour is pressed into minutes: each member
says its 3,600 reports in bursts, and the next burst when a Hello after the last one was answered. A link keeps its
order, so that the answer proves that the master has read them. What is kept of an event does not depend on when it
came, so the master has as much to keep as after an hour; it has written fewer statuses.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import zmq
from aiohttp import web

from measure.played import Member
from outrider.runtime.dealer import Dealer
from outrider.wire.codec import decode_from_master
from outrider.wire.ids import NO_GENERATION, JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Ready, Start, Started, Stepped
from outrider.wire.messages.links import LinkSeen
from outrider.wire.messages.membership import Hello, Welcome
from outrider.wire.messages.report import OwnTime, RankProgress, Report

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.integration.kubernetes.api_server import JOBS, ApiServer

RANKS = 8
BURST, AT_ONCE = 10, 20
"""Reports in one go, and members that say some: what is on its way stays small beside what the master keeps, and
the API server is not kept from answering."""
STEPS_PER_SECOND = 10
WINDOW, LOOK = 25, 10
"""Steps of a window of own times; seconds between two looks at the links."""
SAMPLE_EVERY = 2.0
ROLE = Role("worker")


class Server(ApiServer):
    """Remembers only what is there."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.clear()
        try:
            return await super().handle(request)
        except ConnectionError:  # a watch that the master has given up
            return web.Response()


@asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[tuple[Server, Path]]:
    """And the kubeconfig that names it."""
    server, application = Server(), web.Application(client_max_size=1 << 26)
    server.documents["/version"] = {"major": "1", "minor": "36"}
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    named = {"name": "played", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}
    context = {"name": "played", "context": {"cluster": "played", "user": "anonymous"}}
    users = [{"name": "anonymous", "user": {}}]
    config = folder / "kubeconfig"
    config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "clusters": [named], "contexts": [context],
                                  "users": users, "current-context": "played"}))  # fmt: skip
    try:
        yield server, config
    finally:
        await runner.cleanup()


# -- members ----------------------------------------------------------------------------------------------------------
@dataclass
class Trains(Member):
    """A member whose ranks make ten steps per second of its own clock, which advances with each report."""

    seconds: int = 0
    """Reports that it has said."""
    read: Callable[[], None] = lambda: None
    """Called with each answer to a Hello."""
    ticket: str = ""
    breaks: int = 0
    """Of its link: what was said over one that broke may not have been read."""
    is_behind: bool = True
    """A Hello is not answered yet."""
    others: tuple[MemberId, ...] = ()

    def lost(self) -> None:
        self.breaks += 1

    def greet(self) -> None:
        self.is_behind = True
        running = self.running
        self.say(replace(self.hello, running=running, highest=running, ticket=self.ticket))

    def step(self) -> int:
        return self.seconds * STEPS_PER_SECOND

    def heard(self, payload: bytes) -> None:
        match decode_from_master(payload):
            case Welcome(ticket=ticket):
                self.ticket = ticket or self.ticket
                self.is_behind = False
                if self.running == NO_GENERATION:
                    self.say(Ready(self.port, RANKS, "T0", "played", 1))
                self.read()
            case Start() as start:
                self.running = start.generation
                pids = tuple(range(2, 2 + RANKS))
                self.say(Started(start.order, start.generation, pids))
                self.say(Stepped(start.generation, start.high_step + 1, 0.0))
            case _:
                super().heard(payload)

    def burst(self, reports: int) -> None:
        """And a Hello, which is answered when all of it was read."""
        for _ in range(reports):
            self.seconds += 1
            self.say(self.made())
        self.greet()

    def made(self) -> Report:
        """As a sidecar of eight ranks says it. No two times are equal: what repeats itself is packed into a quarter."""
        step, number, about = self.step(), self.seconds, random.uniform
        ranks = tuple(
            RankProgress(n, step, about(0.0, 0.1), "step", about(0.09, 0.11), step * 32) for n in range(RANKS)
        )
        windows = number * STEPS_PER_SECOND // WINDOW > (number - 1) * STEPS_PER_SECOND // WINDOW
        first = step // WINDOW * WINDOW - WINDOW
        own = tuple(self.window(n, first) for n in range(RANKS)) if windows and first >= 0 else ()
        links = (
            tuple(LinkSeen(other, about(0.0002, 0.0008), 0, 20) for other in self.others) if number % LOOK == 0 else ()
        )
        pids = tuple(range(2, 2 + RANKS))
        return Report(
            self.running, "running", step, 0.1, about(7, 8), about(4000, 4100), RANKS, pids, ranks, 99, "", own, links
        )

    def window(self, rank: int, first: int) -> OwnTime:
        gap, busy, step, cpu, waited = (random.uniform(0.9, 1.1) * each for each in (0.09, 0.08, 0.1, 0.07, 0.01))
        return OwnTime(rank, first, WINDOW, "recorder and cpu", gap, busy, step, 1, cpu, waited)


@asynccontextmanager
async def connected(members: list[Trains], endpoint: str, key: str) -> AsyncIterator[None]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 4 * len(members) + 64)
    for member in members:
        member.dealer = Dealer(context, key, member.heard, member.greet, member.lost)
        member.dealer.connect(endpoint)
        await asyncio.sleep(0)
    try:
        yield
    finally:
        for member in members:
            if member.dealer is not None:
                member.dealer.close()
        context.term()


def make_jobs(server: Server, jobs: int, members: int) -> None:
    """Each in a namespace of its own, as one of another team."""
    container = {"name": "trainer", "image": "none", "command": ["python", "/train.py"]}
    for number in range(jobs):
        worker = {"replicas": members, "template": {"spec": {"containers": [dict(container)]}}}
        spec = {"replicaSpecs": {"worker": worker}, "recovery": {"startPatience": "10m", "silentAfter": "30s"}}
        metadata = {"name": "train", "namespace": f"team-{number}", "uid": f"job-{number}", "generation": 1}
        server.put_job(
            {"apiVersion": "outrider.dev/v1alpha1", "kind": "ElasticJob", "metadata": metadata, "spec": spec}
        )


def run_pods(server: Server) -> list[Trains]:
    """The kubelet's part: all of them run."""
    found = []
    for path in [path for path, each in server.documents.items() if each.get("kind") == "Pod"]:
        pod = server.documents[path]
        status = {"phase": "Running", "containerStatuses": [
            {"name": "trainer", "state": {"running": {}}, "restartCount": 0}]}  # fmt: skip
        server.put(path, {**pod, "metadata": dict(pod["metadata"]), "status": status})
        found.append(_sidecar_of(pod["metadata"]))
    for member in found:
        same = [each.hello.member for each in found if each.hello.job == member.hello.job and each is not member]
        member.others = tuple(same[:3])
    return found


def _sidecar_of(metadata: dict[str, Any]) -> Trains:
    labels, uid, namespace = metadata["labels"], PodUid(metadata["uid"]), metadata["namespace"]
    member, index = MemberId(labels["outrider.dev/member"]), RankIndex(int(labels["outrider.dev/rank-index"]))
    token = f"{namespace}@{uid}"
    return Trains(
        Hello(JobName(f"{namespace}/train"), member, uid, ROLE, index, token, probe_port=9, address="10.0.0.1")
    )


def phases(server: Server) -> list[str]:
    return [
        str((job.get("status") or {}).get("phase")) for job in server.all(f"{JOBS}/") if job["kind"] == "ElasticJob"
    ]


# -- the measurement --------------------------------------------------------------------------------------------------
def memory_of(pid: int, line: str = "VmRSS") -> float:
    """MiB, as the kernel counts them; `VmHWM`: the most there ever were."""
    fields = dict(each.split(":", 1) for each in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields[line].split()[0]) / 1024


async def say_all(members: list[Trains], reports: int, pid: int, note: Callable[[str], None]) -> list[dict[str, float]]:
    """Until each has said so many and the master has read them; the samples meanwhile."""
    samples, begun, tenth = list[dict[str, float]](), time.monotonic(), 0
    turns = deque(members)

    def next_one() -> None:
        if turns:
            member = turns.popleft()
            member.burst(min(BURST, reports - member.seconds))
            if member.seconds < reports:
                turns.append(member)

    for member in members:
        member.read = next_one
    for _ in range(AT_ONCE):
        next_one()
    while True:
        said = sum(member.seconds for member in members) / len(members)
        samples.append({"at": round(time.monotonic() - begun, 1), "reports": round(said, 1), "rss_mib": memory_of(pid)})
        if (now := math.floor(10 * said / reports)) > tenth:
            tenth = now
            mib = samples[-1]["rss_mib"]
            note(f"{said:.0f} of {reports} reports a member after {samples[-1]['at']:.0f} s: {mib:.1f} MiB")
        if said == reports and not any(member.is_behind for member in members):
            return samples
        await asyncio.sleep(SAMPLE_EVERY)
