"""The node check of a real job: real probes in real templates, and a machine that is bad from the start."""

from __future__ import annotations

import os
import shutil
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.training import Training, until

pytestmark = pytest.mark.slow
Start = Callable[..., Training]

STEPPING = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    net(torch.ones(1, 4)).sum().backward()
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    jobs: list[Training] = []

    def begin(*flags: str, script: str = STEPPING) -> Training:
        jobs.append(Training(tmp_path, home, "--network-check", *flags, script=script))
        return jobs[-1]

    try:
        yield begin
    finally:
        for job in jobs:
            job.close()
        shutil.rmtree(home)


def members(job: Training) -> dict[str, Any]:
    return {each["id"]: each for each in job.status()["members"]}


def ended(job: Training) -> dict[int, Any]:
    """The rounds of a job that has ended well."""
    until(lambda: job.process.poll() is not None, job.story, 900)
    assert job.process.returncode == 0, job.story()
    assert job.left() == []
    return {each["round"]: each for each in job.status()["node_check"]}


BAD = ("--nnodes", "4", "--chaos", "bad-node@rank-index=1", "--max-relaunches", "0", "--max-restarts", "0")


def test_a_bad_machine_is_left_out_before_training_and_its_replacement_trains(start: Start, tmp_path: Path) -> None:
    """Measured by a Python that has neither torch nor numpy: it begins in no time."""
    venv.create(tmp_path / "bare", symlinks=True)
    job = start(*BAD, "--python", str(tmp_path / "bare" / "bin" / "python"), script="pass\n")
    rounds = bad_one_is_left_out(job)
    assert {member["kind"] for member in rounds[2]["members"].values() if member["status"] == "ok"} == {"python"}


@pytest.mark.exhaustive
def test_a_bad_machine_is_found_with_torch_too(start: Start) -> None:
    rounds = bad_one_is_left_out(start(*BAD))
    assert {member["kind"] for member in rounds[2]["members"].values() if member["status"] == "ok"} == {"torch cpu"}


def bad_one_is_left_out(job: Training) -> dict[int, Any]:
    rounds = ended(job)
    assert [rounds[number]["members"]["1"]["status"] for number in (0, 1, 2)] == ["failed (died)"] * 2 + ["ok"]
    assert members(job)["worker-1"]["state"] == "failed"
    assert members(job)["worker-4"]["state"] == "done"
    assert job.status()["restarts"] == 0
    assert job.status()["world"] == 4
    said = "outrider: worker-1 failed the node check: compute: round 0: died after"
    assert said in job.log()
    assert "elapsed" in str(job.event("NodeCheckRound", 0, "check round 0: elapsed"))
    return rounds


@pytest.mark.exhaustive
def test_members_that_are_well_are_measured_twice_and_train(start: Start) -> None:
    rounds = ended(start("--nnodes", "4"))
    assert sorted(rounds) == [0, 1]
    for each in rounds.values():
        assert each["ok"] == each["measured"] == 4
        for member in each["members"].values():
            assert member["kind"] == "torch cpu"
            assert 0 < member["compute"] < member["elapsed"]
            assert member["network"] > 0


@pytest.mark.exhaustive
def test_a_slow_machine_is_left_out_where_that_is_wanted(start: Start) -> None:
    job = start("--nnodes", "4", "--exclude-straggler", "--chaos", "bad-node=slow@rank-index=2")
    ended(job)
    assert members(job)["worker-2"]["state"] == "failed"
    assert "times the median" in job.event("MemberExcluded", 0, "worker-2 is too slow for the node check")["reason"]


@pytest.mark.exhaustive
@pytest.mark.xdist_group("netns")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give members cgroups of their own")
def test_a_load_in_one_isolated_member_is_found_and_the_member_replaced(start: Start) -> None:
    job = start("--nnodes", "4", "--isolate", "--exclude-straggler", "--chaos", "cpu-load=90@rank-index=1")
    ended(job)
    assert [each["member"] for each in job.events() if each["kind"] == "MemberExcluded"] == ["worker-1"]
    assert (
        "times the median"
        in job.event("MemberExcluded", 0, "worker-1 is too slow for the node check: compute")["reason"]
    )
    assert members(job)["worker-4"]["state"] == "done"


@pytest.mark.exhaustive
def test_a_command_that_is_no_python_script_is_measured_by_a_python_of_its_container(start: Start) -> None:
    job = start("--nnodes", "2", "--", "sh", "-c", "true")
    assert all(each["ok"] == each["measured"] == 2 for each in ended(job).values())
