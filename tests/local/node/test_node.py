"""The node with real processes: what it starts, what it restarts, and that nothing of a member or a job stays."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from outrider.master.local.server import Node, NodeError
from outrider.runtime.processes import is_alive, marked
from tests.local.chapters import lives_through
from tests.local.node.job import DEADLINE, NodeClient, commands, config, of_job, until

pytestmark = pytest.mark.slow


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: the path of a unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        yield Path(folder)


SLEEPERS = ("sh", "-c", "sleep 1000 & sleep 1000")
NONSENSE = [
    b"\xff\xfe\n",
    b"[1]\n",
    b'{"do":"dance"}\n',
    b'{"do":"create","member":"../x","role":"worker","rank_index":0}\n',
    b"x" * (1 << 21),
]
Pod = dict[str, Any]


@asynccontextmanager
async def asking(node: Node) -> AsyncIterator[tuple[NodeClient, dict[str, Pod]]]:
    """Another client, and the pods that run, by their members."""
    client = await NodeClient.connect(node.config.folder)
    try:
        yield client, await listed(client)
    finally:
        client.close()


async def listed(client: NodeClient) -> dict[str, Pod]:
    await client.say(do="list")
    line: dict[str, Any] = await client.hear(lambda line: "pods" in line)
    return {pod["member"]: pod for pod in line["pods"] if pod["phase"] == "running"}


def restarted(pod: Pod, part: str) -> Callable[[dict[str, Any]], bool]:
    """The line that says so, with the new process in it."""

    def says(line: dict[str, Any]) -> bool:
        told = line.get("pod", {})
        is_it = told.get("uid") == pod["uid"] and told["pids"][part] not in (0, pod["pids"][part])
        return is_it and told["reason"].startswith(f"Restarted{part.capitalize()}")

    return says


def of_member(pod: Pod) -> list[int]:
    return marked("OUTRIDER_POD_UID", str(pod["uid"]))


def sleepers(pids: list[int]) -> list[int]:
    return [pid for pid, command in commands(pids).items() if command == "sleep 1000"]


# -- one node of two members ------------------------------------------------------------------------------------------
async def nonsense_on_its_socket_closes_that_connection_only(node: Node) -> None:
    async with asking(node) as (client, pods):
        for nonsense in NONSENSE:
            stranger = await NodeClient.connect(node.config.folder)
            assert await stranger.is_closed_after(nonsense)
        assert {pod["uid"] for pod in (await listed(client)).values()} == {pod["uid"] for pod in pods.values()}


async def a_second_job_of_the_same_name_is_refused(node: Node) -> None:
    with pytest.raises(NodeError, match=f"is already running: process {os.getpid()}"):
        async with Node(config(node.config.folder.parent, *SLEEPERS)):
            pass
    await until(lambda: len(sleepers(of_job(node.job_uid))) == 4)


async def a_delete_of_an_earlier_incarnation_touches_nobody(node: Node) -> None:
    async with asking(node) as (client, pods):
        pod = pods["worker-0"]
        await client.say(do="delete", member="worker-0", uid="another", grace=0.0)
        await client.hear(lambda line: line.get("gone", {}).get("uid") == "another")
        assert (await listed(client))["worker-0"]["uid"] == pod["uid"]
        assert pod["pids"]["trainer"] in of_member(pod)


async def a_member_that_cannot_be_started_has_failed(node: Node) -> None:
    (node.config.folder / "members" / "worker-7").write_text("in the way")
    async with asking(node) as (client, _):
        await client.say(do="create", member="worker-7", role="worker", rank_index=None)
        told = await client.hear(lambda line: line.get("pod", {}).get("member") == "worker-7")
        assert told["pod"]["phase"] == "failed"
        assert "the member could not be started: [Errno 17] File exists" in str(told["pod"]["reason"])
        await client.say(do="delete", member="worker-7", uid=told["pod"]["uid"], grace=0.0)
        await client.hear(lambda line: line.get("gone", {}).get("member") == "worker-7")


async def a_trainer_that_dies_is_started_again_in_place(node: Node) -> None:
    async with asking(node) as (client, pods):
        pod = pods["worker-0"]
        os.kill(pod["pids"]["trainer"], signal.SIGKILL)
        again = await client.hear(restarted(pod, "trainer"))
        assert again["pod"]["pids"]["sidecar"] == pod["pids"]["sidecar"]


async def a_sidecar_that_dies_is_started_again_and_the_trainer_runs_on(node: Node) -> None:
    async with asking(node) as (client, pods):
        pod = pods["worker-1"]
        os.kill(pod["pids"]["sidecar"], signal.SIGKILL)
        again = await client.hear(restarted(pod, "sidecar"))
        assert again["pod"]["pids"]["trainer"] == pod["pids"]["trainer"]


async def a_master_that_dies_is_started_again_and_the_members_run_on(node: Node) -> None:
    async with asking(node) as (_, pods):
        masters = marked("OUTRIDER_JOB_DIR", str(node.config.folder))
        assert len(masters) == 1
        os.kill(masters[0], signal.SIGKILL)
        await until(lambda: marked("OUTRIDER_JOB_DIR", str(node.config.folder)) not in ([], masters))
        await until(lambda: (node.config.folder / "term").read_text().strip() == "2")
        for pod in pods.values():
            assert {pod["pids"]["sidecar"], pod["pids"]["trainer"]} <= set(of_member(pod))


async def a_frozen_member_is_deleted_whole(node: Node) -> None:
    async with asking(node) as (client, pods):
        pod = pods["worker-0"]
        await until(lambda: len(sleepers(of_member(pod))) == 2)
        for pid in of_member(pod):
            os.kill(pid, signal.SIGSTOP)
        await client.say(do="delete", member=pod["member"], uid=pod["uid"], grace=0.0)
        await client.hear(lambda line: line.get("gone", {}).get("uid") == pod["uid"])
        assert of_member(pod) == []


async def a_member_whose_processes_die_together_is_gone_and_nothing_of_it_stays(node: Node) -> None:
    async with asking(node) as (client, pods):
        pod = pods["worker-1"]
        await until(lambda: len(sleepers(of_member(pod))) == 2)
        os.kill(pod["pids"]["trainer"], signal.SIGKILL)
        os.kill(pod["pids"]["sidecar"], signal.SIGKILL)
        await client.hear(lambda line: line.get("gone", {}).get("uid") == pod["uid"])
        assert of_member(pod) == []


def test_a_node_loses_each_of_its_parts_and_leaves_nothing(tmp_path: Path, subtests: pytest.Subtests) -> None:
    async def story() -> None:
        plan = config(tmp_path, *SLEEPERS, members=2)
        with pytest.raises(NodeError, match="no process could be started: No such file or directory"):
            async with Node(dataclasses.replace(plan, python=str(tmp_path / "no-such-python"))):
                pass  # the folder is free again
        async with Node(plan) as node:
            await until(lambda: len(sleepers(of_job(node.job_uid))) == 4)
            await lives_through(
                subtests,
                node,
                nonsense_on_its_socket_closes_that_connection_only,
                a_second_job_of_the_same_name_is_refused,
                a_delete_of_an_earlier_incarnation_touches_nobody,
                a_member_that_cannot_be_started_has_failed,
                a_trainer_that_dies_is_started_again_in_place,
                a_sidecar_that_dies_is_started_again_and_the_trainer_runs_on,
                a_master_that_dies_is_started_again_and_the_members_run_on,
                a_frozen_member_is_deleted_whole,
                a_member_whose_processes_die_together_is_gone_and_nothing_of_it_stays,
            )
        assert of_job(node.job_uid) == []
        assert not (tmp_path / "job" / "node.sock").exists()

    asyncio.run(story())


# -- one whose three members do different things ----------------------------------------------------------------------
EACH = """case $OUTRIDER_DIR in
*/worker-0) printf 'one\\ntwo'; printf 'bad\\n' >&2; env -i setsid sleep 1234567 & sleep 1000;;
*/worker-1) while [ ! -e end ]; do sleep 0.02; done; exit 3;;
*/worker-2) sleep 1000 & exit 3;;
*) exec sleep 1000;;
esac"""


def test_what_trainers_write_leave_behind_and_end_with(tmp_path: Path, subtests: pytest.Subtests) -> None:
    output: list[tuple[str, str, bytes]] = []

    async def what_a_trainer_writes_comes_in_lines_with_its_member_and_stream(node: Node) -> None:
        await until(lambda: len(output) == 2)
        assert sorted(output) == [("worker-0", "stderr", b"bad\n"), ("worker-0", "stdout", b"one\n")]
        assert b"one" in (node.config.folder / "members" / "worker-0" / "trainer.log").read_bytes()

    async def what_a_dead_trainer_left_is_ended_though_it_carries_no_mark(node: Node) -> None:
        async with asking(node) as (client, pods):
            pod = pods["worker-0"]
            hidden: list[int] = []
            await until(lambda: bool(hidden.extend(hidden_of(pod["pids"]["trainer"])) or hidden))
            os.kill(pod["pids"]["trainer"], signal.SIGKILL)
            await client.hear(restarted(pod, "trainer"))
            await until(lambda: not is_alive(hidden[0]))

    async def one_that_ends_as_its_sidecar_told_it_to_is_not_started_again(node: Node) -> None:
        async with asking(node) as (client, pods):
            (node.config.folder / "members" / "worker-1" / "finishing").touch()
            (tmp_path / "end").touch()
            ended = await client.hear(failed("worker-1"))
            assert (ended["pod"]["exit_code"], ended["pod"]["reason"]) == (3, "Error")
            assert ended["pod"]["uid"] == pods["worker-1"]["uid"]

    async def story() -> None:
        async with Node(config(tmp_path, "sh", "-c", EACH, members=3, output=output)) as node:
            client = await NodeClient.connect(node.config.folder)
            await lives_through(
                subtests,
                node,
                what_a_trainer_writes_comes_in_lines_with_its_member_and_stream,
                what_a_dead_trainer_left_is_ended_though_it_carries_no_mark,
                one_that_ends_as_its_sidecar_told_it_to_is_not_started_again,
            )
            with subtests.test("one that dies again and again fails its member"):
                dead = await client.hear(failed("worker-2"))
                assert dead["pod"]["exit_code"] == 3
                assert of_member(dead["pod"]) == []
            client.close()
        assert ("worker-0", "stdout", b"two") in output, "what had no end when its trainer ended"

    asyncio.run(story())


def failed(member: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: line.get("pod", {}).get("member") == member and line["pod"]["phase"] == "failed"


def hidden_of(trainer: int) -> list[int]:
    """The trainer's children that carry no mark any more."""
    children = [int(pid) for pid in Path(f"/proc/{trainer}/task/{trainer}/children").read_text().split()]
    return [pid for pid, command in commands(children).items() if command == "sleep 1234567"]


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("a file")
    with pytest.raises(NodeError, match=r"the job's folder .*/job cannot be used"):
        async with Node(config(tmp_path, *SLEEPERS)):
            pass


async def test_a_folder_too_deep_for_its_sockets_is_named_with_its_length(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    with pytest.raises(NodeError, match=r"the socket path .*agent\.sock has \d+ bytes, but a unix socket takes 107"):
        async with Node(config(deep, *SLEEPERS)):
            pass


OWNER = """
import asyncio, sys
from pathlib import Path
from outrider.master.local.server import Node
from tests.local.node.job import config, of_job, until
async def main():
    trainer = ("sh", "-c", "sleep 1000 & setsid sleep 1000 & sleep 1000")
    async with Node(config(Path(sys.argv[1]), *trainer, members=2)) as node:
        await until(lambda: len(of_job(node.job_uid)) >= 11)
        print(node.job_uid, flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""


async def _owner(tmp_path: Path) -> tuple[asyncio.subprocess.Process, str]:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(tmp_path), stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    assert owner.stdout is not None
    uid = (await asyncio.wait_for(owner.stdout.readline(), DEADLINE)).decode().strip()
    return owner, uid


@pytest.mark.exhaustive
async def test_nothing_is_left_after_the_command_is_killed(tmp_path: Path) -> None:
    owner, uid = await _owner(tmp_path)
    assert len(of_job(uid)) >= 11
    owner.kill()
    await owner.wait()
    await until(lambda: not of_job(uid))


async def test_nothing_is_left_after_command_and_master_are_killed_while_every_member_is_frozen(tmp_path: Path) -> None:
    owner, uid = await _owner(tmp_path)
    everything = of_job(uid)
    masters = [pid for pid in everything if b"OUTRIDER_JOB_DIR=" in Path(f"/proc/{pid}/environ").read_bytes()]
    assert len(masters) == 1
    for pid in set(everything) - set(masters):
        os.kill(pid, signal.SIGSTOP)
    os.kill(masters[0], signal.SIGKILL)
    owner.kill()
    await owner.wait()
    await until(lambda: not of_job(uid))
