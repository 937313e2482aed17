"""Measures one master of a large job: memory and CPU time with 100 members that report each second.

With KUBECONFIG: a real master process with the Kubernetes shell, started here for that cluster while the installed
masters are off (their Deployment is scaled to 0, and back). The pods are real objects that no scheduler handles. With
--local: the master of `outrider run`, whose local host is simulated here: core and sockets, without the API server.
In both cases the sidecars are simulated, over real ZeroMQ with CURVE. Memory and CPU time are those of the master's
process, as it counts them itself; the first sample is taken before there is a job.

With --jobs: a real master of a cluster whose API server is played too (`measure/many_jobs.py`), and an hour's worth of
the reports of members with 8 ranks, in minutes. It fails where the master ever had more memory than --limit MiB,
or a link broke, so that it may not have read all of them.

Run: python benchmarks/cluster_master.py [--local] [--members 100] [--seconds 30] [--json]
     python benchmarks/cluster_master.py --jobs 100 --members 8 [--reports 3600] [--limit 400] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from measure import many_jobs, metrics_reader
from measure.played import Member, play
from measure.report import table, write
from prometheus_client.parser import text_string_to_metric_families

from outrider.master.core.k8s.values import session_ticket
from outrider.runtime.curve_keys import new_key_pair
from outrider.wire.ids import JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.membership import Hello

ROOT = Path(__file__).resolve().parents[1]
SYSTEM, NAMESPACE, JOB = "outrider-system", "outrider-bench", "large"
MASTERS = "outrider.dev/part=master"
WRITES = ("create", "update", "patch", "delete")
PATIENCE = 120.0
Found = TypeVar("Found")


@dataclass
class Sample:
    rss_mib: float
    cpu_seconds: float
    at: float
    running: float
    leads: float
    writes: float


@dataclass
class Stage:
    """A running master, and how its members are created."""

    endpoint: str
    public_key: str
    sample: Callable[[], Awaitable[Sample]]
    members: Callable[[int], Awaitable[list[Member]]]
    log: Path


async def scrape(url: str, path: str | None = None, token: str = "") -> Sample:
    connector = aiohttp.UnixConnector(path) if path else None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as client, client.get(url) as answer:
        text = await answer.text()
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]

    def total(name: str, **labels: str) -> float:
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    return Sample(
        total("process_resident_memory_bytes") / 2**20,
        total("process_cpu_seconds_total"),
        time.monotonic(),
        total("outrider_members", state="running"),
        total("outrider_leader"),
        sum(total("outrider_api_requests_total", verb=verb) for verb in WRITES),
    )


async def until(what: str, log: Path, claim: Callable[[], Awaitable[Found | None]]) -> Found:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, aiohttp.ClientError):
            if found := await claim():
                return found
        await asyncio.sleep(0.25)
    raise SystemExit(f"not within {PATIENCE:g} s: {what}; the master said:\n{log.read_text()[-3000:]}")


@contextmanager
def process(log: Path, variables: dict[str, str]) -> Iterator[int]:
    """Run a master; its pid."""
    with log.open("wb") as out:
        master = subprocess.Popen(
            [sys.executable, "-m", "outrider.master"], cwd=ROOT, env={**os.environ, **variables}, stdout=out, stderr=out
        )
    try:
        yield master.pid
    finally:
        master.terminate()
        with contextlib.suppress(
            subprocess.TimeoutExpired
        ):  # the local one waits for members that do not play any more
            master.wait(5)
        master.kill()
        master.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


# -- in a cluster -----------------------------------------------------------------------------------------------------
def kubectl(*arguments: str, given: str | None = None) -> str:
    done = subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True, timeout=180)
    if done.returncode:
        raise SystemExit(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def documents(*arguments: str) -> Any:
    return json.loads(kubectl(*arguments, "-o", "json"))


@contextmanager
def resting() -> Iterator[None]:
    """No other master leads meanwhile, and all objects created here are deleted at the end."""
    deployment = ("-n", SYSTEM, "scale", "deployment", "outrider-master")
    before = documents("-n", SYSTEM, "get", "deployment", "outrider-master")["spec"]["replicas"]
    kubectl("create", "namespace", NAMESPACE)
    kubectl(*deployment, "--replicas=0")
    try:
        kubectl("-n", SYSTEM, "wait", "--for=delete", "pod", "-l", MASTERS, "--timeout=150s")
        yield
    finally:
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        kubectl("-n", NAMESPACE, "delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
        kubectl(*deployment, f"--replicas={before}")


@asynccontextmanager
async def in_a_cluster(folder: Path, members: int) -> AsyncIterator[Stage]:
    sidecars, http, log = free_port(), free_port(), folder / "master.log"
    variables = {
        "OUTRIDER_PLATFORM": "kubernetes", "POD_NAMESPACE": SYSTEM, "POD_NAME": "benchmark",
        "OUTRIDER_IMAGE": "outrider/sidecar:dev", "OUTRIDER_JOURNALS": str(folder), "OUTRIDER_LOG": "json",
        "OUTRIDER_SIDECARS_PORT": str(sidecars), "OUTRIDER_HTTP_PORT": str(http),
        "OUTRIDER_WEBHOOK_PORT": str(free_port()),
    }  # fmt: skip

    async def sample() -> Sample:
        return await scrape(f"http://127.0.0.1:{http}/metrics", token=metrics_reader.token())

    async def leads() -> bool:
        return (await sample()).leads == 1

    async def made(count: int) -> list[Member]:
        make_job(count)
        pods = await until("the pods", log, lambda: all_pods(count))
        key = secret("outrider-tickets")["key"]
        return [member_of(pod, key) for pod in pods]

    with resting(), process(log, variables):
        await until("the master to lead", log, leads)
        public = secret("outrider-master-curve")["public"].decode()
        yield Stage(f"tcp://127.0.0.1:{sidecars}", public, sample, made, log)


def make_job(members: int) -> None:
    container = {"name": "trainer", "image": "none", "command": ["python", "/train.py"]}
    template = {"spec": {"schedulerName": "nobody", "containers": [container]}}
    worker = {"replicas": members, "template": template}
    spec = {"replicaSpecs": {"worker": worker}, "recovery": {"startPatience": "5m", "silentAfter": "30s"}}
    job = {"apiVersion": "outrider.dev/v1alpha1", "kind": "ElasticJob", "metadata": {"name": JOB}, "spec": spec}
    kubectl("-n", NAMESPACE, "create", "-f", "-", given=json.dumps(job))


async def all_pods(count: int) -> list[Any] | None:
    found: list[Any] = documents("-n", NAMESPACE, "get", "pods")["items"]
    return found if len(found) == count else None


def secret(name: str) -> dict[str, bytes]:
    return {key: b64decode(value) for key, value in documents("-n", SYSTEM, "get", "secret", name)["data"].items()}


def member_of(pod: Any, key: bytes) -> Member:
    """A Hello with a ticket, as an earlier master would have issued it."""
    labels, uid = pod["metadata"]["labels"], PodUid(pod["metadata"]["uid"])
    member, index = MemberId(labels["outrider.dev/member"]), RankIndex(int(labels["outrider.dev/rank-index"]))
    hello = Hello(JobName(f"{NAMESPACE}/{JOB}"), member, uid, Role("worker"), index, "", probe_port=9)
    return Member(replace(hello, ticket=session_ticket.issue(key, hello, time.time())))


# -- without one ------------------------------------------------------------------------------------------------------
@asynccontextmanager
async def alone(folder: Path, members: int) -> AsyncIterator[Stage]:
    keys, token, port, log = new_key_pair(), secrets.token_hex(8), free_port(), folder / "master.log"
    sizes = dict.fromkeys(("min_members", "max_members", "replicas"), members)
    spec = {"name": JOB, **sizes, "silent_after": 30.0, "start_patience": 300.0}
    hello = Hello(JobName(JOB), MemberId(""), PodUid(""), Role("worker"), None, token, probe_port=9)
    node = Node()
    for name, text in (("key", keys.secret), ("token", token)):
        (folder / name).write_text(text)
    variables = {
        "OUTRIDER_JOB_DIR": str(folder), "OUTRIDER_SPEC": json.dumps(spec),
        "OUTRIDER_BIND": f"tcp://127.0.0.1:{port}", "OUTRIDER_MASTER_KEY_FILE": str(folder / "key"),
        "OUTRIDER_TOKEN_FILE": str(folder / "token"), "OUTRIDER_NODE_SOCKET": str(folder / "node.sock"),
    }  # fmt: skip

    async def sample() -> Sample:
        return await scrape("http://job/metrics", str(folder / "master.sock"))

    async def made(count: int) -> list[Member]:
        node.may_make.set()
        await until("the members", log, lambda: node.has(count))
        return [Member(replace(hello, member=MemberId(name), uid=PodUid(f"uid-{name}"), rank_index=RankIndex(index)))
                for name, index in node.made.items()]  # fmt: skip

    server = await asyncio.start_unix_server(node.serve, folder / "node.sock")
    async with server:
        with process(log, variables):
            await until("the master", log, sample)
            yield Stage(f"tcp://127.0.0.1:{port}", keys.public, sample, made, log)


class Node:
    """Takes the part of `outrider run`: it reports that each member exists."""

    def __init__(self) -> None:
        self.made: dict[str, int] = {}
        self.may_make = asyncio.Event()

    async def has(self, count: int) -> bool:
        return len(self.made) == count

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # at the end of the measurement
            while line := await reader.readline():
                asked = json.loads(line)
                if asked["do"] == "list":
                    await self.may_make.wait()
                    writer.write(b'{"pods": []}\n')
                elif asked["do"] == "create":
                    name, index = asked["member"], asked["rank_index"]
                    self.made[name] = index
                    pod = {"member": name, "uid": f"uid-{name}", "role": "worker", "rank_index": index, "reason": "",
                           "phase": "running", "exit_code": None, "pids": {}}  # fmt: skip
                    writer.write(json.dumps({"pod": pod}).encode() + b"\n")
        writer.close()


# -- many jobs --------------------------------------------------------------------------------------------------------
async def hour(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    sidecars, log, count = free_port(), folder / "master.log", asked.jobs * asked.members
    async with many_jobs.api_server(folder) as (server, config):
        variables = {
            "OUTRIDER_PLATFORM": "kubernetes", "POD_NAMESPACE": SYSTEM, "POD_NAME": "benchmark",
            "OUTRIDER_IMAGE": "outrider/sidecar:dev", "OUTRIDER_JOURNALS": str(folder), "OUTRIDER_LOG": "json",
            "OUTRIDER_SIDECARS_PORT": str(sidecars), "OUTRIDER_HTTP_PORT": str(free_port()),
            "OUTRIDER_SERVES": "master", "KUBECONFIG": str(config),
        }  # fmt: skip

        async def all_pods() -> bool:
            return sum(each.get("kind") == "Pod" for each in server.documents.values()) == count

        async def all_run() -> bool:
            return many_jobs.phases(server).count("Running") == asked.jobs

        with process(log, variables) as pid:
            key = f"/api/v1/namespaces/{SYSTEM}/secrets/outrider-master-curve"
            held = await until("the master's key", log, lambda: found(server.documents, key))
            await asyncio.sleep(5)
            idle = many_jobs.memory_of(pid)
            many_jobs.make_jobs(server, asked.jobs, asked.members)
            await until("the pods", log, all_pods)
            members = many_jobs.run_pods(server)
            public = b64decode(held["data"]["public"]).decode()
            async with many_jobs.connected(members, f"tcp://127.0.0.1:{sidecars}", public):
                await until("all jobs to run", log, all_run)
                note = print if not asked.json else lambda _text: None
                samples = await many_jobs.say_all(members, asked.reports, pid, note)
                breaks = sum(member.breaks for member in members)
            most = many_jobs.memory_of(pid, "VmHWM")
    return {"jobs": asked.jobs, "members": asked.members, "reports": asked.reports, "ranks": many_jobs.RANKS,
            "idle_rss_mib": round(idle, 1), "most_rss_mib": round(most, 1), "limit_mib": asked.limit,
            "seconds": samples[-1]["at"], "broken_links": breaks, "samples": samples}  # fmt: skip


async def found(documents: dict[str, Any], path: str) -> Any:
    return documents.get(path)


def of_many_jobs(asked: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(hour(asked, Path(folder)))
    samples = result["samples"]
    shown = [samples[round(n * (len(samples) - 1) / 10)] for n in range(11)]
    if asked.json:
        print(json.dumps(result))
    else:
        rows = [[f"{each['reports']:.0f}", f"{each['at']:.0f}", f"{each['rss_mib']:.1f}"] for each in shown]
        print(table(["reports a member", "s", "MiB"], rows))
        print(f"{asked.jobs} jobs of {asked.members} members of {result['ranks']} ranks: at most "
              f"{result['most_rss_mib']} MiB of {asked.limit:g}, {result['idle_rss_mib']} without a job; "
              f"{result['broken_links']} links broke")  # fmt: skip
    write("cluster_master", {"result": result})
    return int(result["most_rss_mib"] > asked.limit or result["broken_links"] > 0)


# -- the measurement --------------------------------------------------------------------------------------------------
async def measure(stage: Stage, members: int, seconds: float) -> dict[str, Any]:
    await asyncio.sleep(5)
    idle = await stage.sample()
    everyone, over = await stage.members(members), asyncio.Event()
    playing = asyncio.ensure_future(play(everyone, stage.endpoint, stage.public_key, over))

    async def all_run() -> bool:
        return (await stage.sample()).running == members

    try:
        await until("all members to run", stage.log, all_run)
        await asyncio.sleep(5)
        first = await stage.sample()
        await asyncio.sleep(seconds)
        last = await stage.sample()
    finally:
        over.set()
        await playing
    took = last.at - first.at
    return {
        "members": members,
        "idle_rss_mib": round(idle.rss_mib, 1),
        "rss_mib": round(last.rss_mib, 1),
        "cpu_percent": round(100 * (last.cpu_seconds - first.cpu_seconds) / took, 2),
        "writes": int(last.writes - first.writes),
        "seconds": round(took, 1),
        "load": round(os.getloadavg()[0], 1),
    }


async def run(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    stage = alone if asked.local else in_a_cluster
    async with stage(folder, asked.members) as made:
        return await measure(made, asked.members, asked.seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--local", action="store_true", help="the master of outrider run, without a cluster")
    parser.add_argument("--jobs", type=int, default=0, help="so many jobs, beside an API server that is played")
    parser.add_argument("--members", type=int, default=100, help="of a job")
    parser.add_argument("--reports", type=int, default=3600, help="of each member, with --jobs")
    parser.add_argument("--limit", type=float, default=400.0, help="MiB, with --jobs")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.jobs:
        return of_many_jobs(asked)
    if not asked.local and not os.environ.get("KUBECONFIG"):
        raise SystemExit("KUBECONFIG must name a cluster in which Outrider is installed; or give --local")
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(run(asked, Path(folder)))
    where = "without a cluster" if asked.local else "of a cluster"
    if asked.json:
        print(json.dumps({"where": where, **found}))
        return 0
    text = "one master {where}, {members} members that report each second, {seconds} s, load {load}:\n" \
           "  memory {rss_mib} MiB ({idle_rss_mib} MiB without a job), {cpu_percent} % of a core\n" \
           "  {writes} writes to the API server"  # fmt: skip
    print(text.format(where=where, **found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
