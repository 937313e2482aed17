"""The node with real processes: what it starts, what it restarts, and that nothing of a member or a job stays."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from master.shell.node import Node, NodeError
from runtime.processes import is_alive, marked
from tests.local.job import NodeClient, commands, config, of_job, until

pytestmark = pytest.mark.slow


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: the path of a unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        yield Path(folder)


SLEEPERS = ("sh", "-c", "sleep 1000 & sleep 1000")


def running(line: dict[str, dict[str, object]]) -> bool:
    return line.get("pod", {}).get("phase") == "running"


async def first_member(client: NodeClient) -> dict[str, object]:
    await client.say(do="list")
    line = await client.hear(lambda line: bool(line.get("pods")) or running(line))
    pods = line.get("pods")
    return pods[0] if isinstance(pods, list) else line["pod"]


def pids(pod: dict[str, object]) -> dict[str, int]:
    found = pod["pids"]
    assert isinstance(found, dict)
    return found


def of_member(pod: dict[str, object]) -> list[int]:
    return marked("OUTRIDER_POD_UID", str(pod["uid"]))


def sleepers(pod: dict[str, object]) -> list[int]:
    return [pid for pid, command in commands(of_member(pod)).items() if command == "sleep 1000"]


async def test_a_job_leaves_nothing_when_the_command_ends_in_order(tmp_path: Path) -> None:
    async with Node(config(tmp_path, *SLEEPERS, members=2)) as node:
        await until(lambda: sum(command == "sleep 1000" for command in commands(of_job(node.job_uid)).values()) == 4)
    assert of_job(node.job_uid) == []
    assert not (tmp_path / "job" / "node.sock").exists()


async def test_a_trainer_that_dies_is_started_again_in_place(tmp_path: Path) -> None:
    async with Node(config(tmp_path, *SLEEPERS)) as node:
        client = await NodeClient.connect(node.config.folder)
        pod = await first_member(client)
        os.kill(pids(pod)["trainer"], signal.SIGKILL)
        again = await client.hear(lambda line: str(line.get("pod", {}).get("reason")).startswith("RestartedTrainer"))
        assert again["pod"]["uid"] == pod["uid"]
        assert pids(again["pod"])["trainer"] != pids(pod)["trainer"]
        assert pids(again["pod"])["sidecar"] == pids(pod)["sidecar"]
        client.close()


async def test_a_trainer_that_ends_as_its_sidecar_told_it_to_is_not_started_again(tmp_path: Path) -> None:
    async with Node(config(tmp_path, "sh", "-c", "while [ ! -e end ]; do sleep 0.02; done; exit 3")) as node:
        client = await NodeClient.connect(node.config.folder)
        pod = await first_member(client)
        (node.config.folder / "members" / str(pod["member"]) / "finishing").touch()
        (tmp_path / "end").touch()
        ended = await client.hear(lambda line: line.get("pod", {}).get("phase") == "failed")
        assert (ended["pod"]["exit_code"], ended["pod"]["reason"]) == (3, "Error")
        client.close()


async def test_a_sidecar_that_dies_is_started_again_and_the_trainer_runs_on(tmp_path: Path) -> None:
    async with Node(config(tmp_path, *SLEEPERS)) as node:
        client = await NodeClient.connect(node.config.folder)
        pod = await first_member(client)
        os.kill(pids(pod)["sidecar"], signal.SIGKILL)
        again = await client.hear(lambda line: str(line.get("pod", {}).get("reason")).startswith("RestartedSidecar"))
        assert pids(again["pod"])["trainer"] == pids(pod)["trainer"]
        assert pids(again["pod"])["sidecar"] != pids(pod)["sidecar"]
        client.close()


async def test_a_member_whose_processes_die_together_is_gone_and_nothing_of_it_stays(tmp_path: Path) -> None:
    async with Node(config(tmp_path, *SLEEPERS)) as node:
        client = await NodeClient.connect(node.config.folder)
        pod = await first_member(client)
        await until(lambda: len(sleepers(pod)) == 2)
        os.kill(pids(pod)["trainer"], signal.SIGKILL)
        os.kill(pids(pod)["sidecar"], signal.SIGKILL)
        gone = await client.hear(lambda line: "gone" in line)
        assert gone["gone"]["uid"] == pod["uid"]
        assert of_member(pod) == []
        client.close()


async def test_what_a_dead_trainer_left_is_ended_though_it_carries_no_mark(tmp_path: Path) -> None:
    hiding = ("sh", "-c", "env -i setsid sleep 1234567 & sleep 1000")
    async with Node(config(tmp_path, *hiding)) as node:
        client = await NodeClient.connect(node.config.folder)
        pod = await first_member(client)
        hidden: list[int] = []
        await until(lambda: bool(hidden.extend(hidden_of(pids(pod)["trainer"])) or hidden))
        os.kill(pids(pod)["trainer"], signal.SIGKILL)
        await client.hear(lambda line: str(line.get("pod", {}).get("reason")).startswith("RestartedTrainer"))
        await until(lambda: not is_alive(hidden[0]))
        client.close()
    assert not is_alive(hidden[0])


def hidden_of(trainer: int) -> list[int]:
    """The trainer's children that carry no mark any more."""
    children = [int(pid) for pid in Path(f"/proc/{trainer}/task/{trainer}/children").read_text().split()]
    return [pid for pid, command in commands(children).items() if command == "sleep 1234567"]


async def test_a_trainer_that_dies_again_and_again_fails_its_member(tmp_path: Path) -> None:
    async with Node(config(tmp_path, "sh", "-c", "sleep 1000 & exit 3")) as node:
        client = await NodeClient.connect(node.config.folder)
        failed = await client.hear(lambda line: line.get("pod", {}).get("phase") == "failed")
        assert failed["pod"]["exit_code"] == 3
        assert of_member(failed["pod"]) == []
        client.close()


async def test_a_frozen_member_is_deleted_whole(tmp_path: Path) -> None:
    async with Node(config(tmp_path, *SLEEPERS)) as node:
        client = await NodeClient.connect(node.config.folder)
        pod = await first_member(client)
        await until(lambda: len(sleepers(pod)) == 2)
        for pid in of_member(pod):
            os.kill(pid, signal.SIGSTOP)
        await client.say(do="delete", member=pod["member"], uid=pod["uid"], grace=0.0)
        await client.hear(lambda line: line.get("gone", {}).get("uid") == pod["uid"])
        assert of_member(pod) == []
        client.close()


async def test_a_delete_of_an_earlier_incarnation_touches_nobody(tmp_path: Path) -> None:
    async with Node(config(tmp_path, *SLEEPERS)) as node:
        client = await NodeClient.connect(node.config.folder)
        pod = await first_member(client)
        await client.say(do="delete", member=pod["member"], uid="another", grace=0.0)
        await client.hear(lambda line: line.get("gone", {}).get("uid") == "another")
        await client.say(do="list")
        listed = await client.hear(lambda line: "pods" in line)
        assert [each["uid"] for each in listed["pods"]] == [pod["uid"]]
        assert pids(pod)["trainer"] in of_member(pod)
        client.close()


async def test_a_master_that_dies_is_started_again_and_the_members_run_on(tmp_path: Path) -> None:
    async with Node(config(tmp_path, *SLEEPERS)) as node:
        client = await NodeClient.connect(node.config.folder)
        pod = await first_member(client)
        masters = marked("OUTRIDER_JOB_DIR", str(node.config.folder))
        assert len(masters) == 1
        os.kill(masters[0], signal.SIGKILL)
        await until(lambda: marked("OUTRIDER_JOB_DIR", str(node.config.folder)) not in ([], masters))
        await until(lambda: (node.config.folder / "term").read_text().strip() == "2")
        assert {pids(pod)["sidecar"], pids(pod)["trainer"]} <= set(of_member(pod))
        client.close()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xff\xfe\n",
        b"[1]\n",
        b'{"do":"dance"}\n',
        b'{"do":"create","member":"../x","role":"worker","rank_index":0}\n',
        b"x" * (1 << 21),
    ],
)
async def test_nonsense_on_node_sock_closes_that_connection_only(tmp_path: Path, nonsense: bytes) -> None:
    async with Node(config(tmp_path, *SLEEPERS)) as node:
        client = await NodeClient.connect(node.config.folder)
        pod = await first_member(client)
        stranger = await NodeClient.connect(node.config.folder)
        assert await stranger.is_closed_after(nonsense)
        await client.say(do="list")
        listed = await client.hear(lambda line: "pods" in line)
        assert listed["pods"][0]["uid"] == pod["uid"]
        client.close()


async def test_what_a_trainer_writes_comes_in_lines_with_its_member_and_stream(tmp_path: Path) -> None:
    output: list[tuple[str, str, bytes]] = []
    script = "printf 'one\\ntwo'; printf 'bad\\n' >&2; exec sleep 1000"
    async with Node(config(tmp_path, "sh", "-c", script, output=output)) as node:
        await until(lambda: len(output) == 2)
        folder = node.config.folder
    assert sorted(output) == [
        ("worker-0", "stderr", b"bad\n"),
        ("worker-0", "stdout", b"one\n"),
        ("worker-0", "stdout", b"two"),
    ]
    assert b"one" in (folder / "members" / "worker-0" / "trainer.log").read_bytes()


async def test_a_second_job_of_the_same_name_is_refused_and_the_first_runs_on(tmp_path: Path) -> None:
    async with Node(config(tmp_path, *SLEEPERS)) as node:
        with pytest.raises(NodeError, match=f"runs already: process {os.getpid()}"):
            async with Node(config(tmp_path, *SLEEPERS)):
                pass
        await until(lambda: len(of_job(node.job_uid)) >= 5)


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("a file")
    with pytest.raises(NodeError, match=r"the job's folder .*/job cannot be used"):
        async with Node(config(tmp_path, *SLEEPERS)):
            pass


async def test_a_master_that_cannot_be_started_is_told_and_the_folder_is_free_again(tmp_path: Path) -> None:
    plan = config(tmp_path, *SLEEPERS)
    with pytest.raises(NodeError, match="no process can be started: No such file or directory"):
        async with Node(dataclasses.replace(plan, python=str(tmp_path / "no-such-python"))):
            pass
    async with Node(plan) as node:
        await until(lambda: len(of_job(node.job_uid)) >= 5)


async def test_a_member_that_cannot_be_started_has_failed_and_the_node_goes_on(tmp_path: Path) -> None:
    async with Node(config(tmp_path, *SLEEPERS)) as node:
        (node.config.folder / "members" / "worker-7").write_text("in the way")
        client = await NodeClient.connect(node.config.folder)
        await client.say(do="create", member="worker-7", role="worker", rank_index=None)
        told = await client.hear(lambda line: line.get("pod", {}).get("member") == "worker-7")
        assert told["pod"]["phase"] == "failed"
        assert "the member cannot be started: [Errno 17] File exists" in str(told["pod"]["reason"])
        await client.say(do="delete", member="worker-7", uid=told["pod"]["uid"], grace=0.0)
        await client.hear(lambda line: line.get("gone", {}).get("member") == "worker-7")
        client.close()


async def test_a_folder_too_deep_for_its_sockets_is_named_with_its_length(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    with pytest.raises(NodeError, match=r"the socket path .*agent\.sock has \d+ bytes, and a unix socket takes 107"):
        async with Node(config(deep, *SLEEPERS)):
            pass


OWNER = """
import asyncio, sys
from pathlib import Path
from master.shell.node import Node
from tests.local.job import config, of_job, until
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
        sys.executable, "-c", OWNER, str(tmp_path), stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert owner.stdout is not None
    uid = (await asyncio.wait_for(owner.stdout.readline(), 60)).decode().strip()
    return owner, uid


async def test_nothing_is_left_after_the_command_is_killed(tmp_path: Path) -> None:
    owner, uid = await _owner(tmp_path)
    assert len(of_job(uid)) >= 11
    owner.kill()
    await owner.wait()
    await asyncio.wait_for(until(lambda: not of_job(uid)), 60)


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
    await asyncio.wait_for(until(lambda: not of_job(uid)), 60)
