"""Two members of a real job that cannot see each other: told, and one replaced where training stands still.

The kernel drops what goes between the two (iptables, which needs root): of members of one network the datagrams of
their sidecars alone, where a rank that sleeps plays the collective that does not come through; of isolated members
everything, so that the ranks' own connections stand still.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.node.test_isolate import Isolated
from tests.local.training import Training, members, one_job, pids

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.xdist_group("netns"),
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("iptables"), reason="needs root and iptables"),
]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Training]:
    with one_job(tmp_path, "--nnodes", "3") as job:
        yield job


def rule(what: str, source: int, target: int) -> bool:
    """Adds (-I) or takes away (-D) one; False where there is none to be taken away."""
    ports = ["-p", "udp", "--sport", str(source), "--dport", str(target)]
    done = subprocess.run(["iptables", "-w", what, "INPUT", "-i", "lo", *ports, "-j", "DROP"], timeout=60)
    assert done.returncode == 0 or what == "-D"
    return done.returncode == 0


def test_it_is_told_and_the_younger_one_is_replaced_when_no_step_is_made(job: Training) -> None:
    restart, world = job.training(3, more=30)
    one, two = members(world)[1:]
    ports = [int((job.job_folder / "members" / member / "probe-port").read_text()) for member in (one, two)]
    mark, cut = job.mark(), [tuple(ports), tuple(reversed(ports))]
    for pair in cut:
        rule("-I", *pair)
    try:
        job.event("LinkDown", mark, f"{one} and {two} cannot reach each other", "though the master hears both")
        again, same = job.training(3, more=len(world[0]) + 30)
        assert (again, pids(same)) == (restart, pids(world))
        assert "NetworkPartition" not in job.told(mark)
        for pair in cut:
            rule("-D", *pair)
        job.event("LinkUp", mark)
        for pair in cut:
            rule("-I", *pair)
        job.order(0, "time.sleep(1e6)")
        event = job.event(
            "NetworkPartition", mark, "No rank has completed a step for", f"{one} and {two} cannot reach each other"
        )
        assert event["member"] == two
        _, new = job.training(3, after=restart)
        assert two not in members(new)
    finally:
        for pair in cut:
            while rule("-D", *pair):
                pass
    job.end_well()


@pytest.fixture
def isolated(tmp_path: Path) -> Iterator[Isolated]:
    with one_job(tmp_path, "--nnodes", "3", "--isolate", kind=Isolated) as job:
        yield job


def cut_off_from(job: Isolated, member: str, other: str) -> None:
    """Both ways, by rules in the network of the first, which end with it."""
    hosts = (job.job_folder / "hosts").read_text().splitlines()
    address = next(line.split()[0] for line in hosts if line.endswith(f" {other}"))
    inside = ["nsenter", f"--net=/proc/{job.tree(member)[0]}/ns/net", "iptables", "-w"]
    for chain, side in (("INPUT", "-s"), ("OUTPUT", "-d")):
        subprocess.run([*inside, "-I", chain, side, address, "-j", "DROP"], timeout=60, check=True)


def test_ranks_whose_connection_is_cut_train_on_without_one_of_the_two(isolated: Isolated) -> None:
    restart, world = isolated.training(3)
    one, two = members(world)[1:]
    mark = isolated.mark()
    cut_off_from(isolated, two, one)
    isolated.event("LinkDown", mark, f"{one} and {two} cannot reach each other", "though the master hears both")
    event = isolated.event("NetworkPartition", mark, f"{one} and {two} cannot reach each other", f"{two} is replaced")
    assert event["member"] == two
    assert "MemberSilent" not in isolated.told(mark)
    _, new = isolated.training(3, after=restart)
    assert members(new)[:2] == members(world)[:2]
    assert two not in members(new)
    isolated.end_well()
