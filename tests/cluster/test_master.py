"""The master is killed, or frozen and thawed: training does not notice, and another one does what that could not."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from tests.cluster.cluster import SYSTEM, ClusterJob, Document, kubectl, until
from tests.cluster.conftest import Make
from tests.cluster.masters import leader, leaders, processes_of
from tests.cluster.reading import shown


def master_pod(name: str) -> Document:
    return shown("pods", name, SYSTEM)


def kill(job: ClusterJob, rank: int) -> None:
    pod = job.pod(f"worker-{rank // 2}")
    job.execute(pod, f"kill -9 {job.pid_of(pod, f'rank {rank}')}")


@pytest.mark.ends_masters
def test_the_leader_is_killed_and_nobody_notices(make: Make) -> None:
    job = make()
    restart, _world = job.training(4)
    before = job.uids()
    kubectl("-n", SYSTEM, "delete", "pod", leader()["metadata"]["name"], "--grace-period=0", "--force")
    job.event("GenerationAdopted")
    steps = len(job.worlds()[restart][0])
    same, _on = job.training(4, more=steps + 20)
    assert same == restart
    assert job.keeps(before)
    kill(job, 0)
    job.training(4, after=restart)


@pytest.mark.ends_masters
def test_a_leader_that_was_frozen_gives_no_order_when_it_thaws(make: Make, frozen: list[int]) -> None:
    job = make()
    restart, _world = job.training(4)
    before = job.uids()
    old = leader()
    frozen += processes_of(old)
    if not frozen:
        pytest.skip("the nodes of this cluster are other machines, whose processes cannot be stopped from here")
    restarts = old["status"]["containerStatuses"][0]["restartCount"]
    name = old["metadata"]["name"]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: name not in [pod["metadata"]["name"] for pod in leaders()] and leaders(), "another leader")
    job.event("GenerationAdopted")
    kill(job, 3)
    newer, world = job.training(4, after=restart)
    for pid in frozen:
        with contextlib.suppress(ProcessLookupError):  # where that took long, its kubelet has ended it
            os.kill(pid, signal.SIGCONT)
    until(lambda: master_pod(name)["status"]["containerStatuses"][0]["restartCount"] > restarts, "the old one to end")
    same, _on = job.training(4, more=len(world[0]) + 30)
    assert same == newer
    assert job.keeps(before)
    assert [pod["metadata"]["name"] for pod in leaders()] != [name]
