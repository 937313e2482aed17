"""The master is killed, or frozen and thawed: training does not notice, and another one does what that could not."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import SYSTEM, ClusterJob, Document, kubectl, rolled_out, until
from tests.cluster.conftest import Make
from tests.cluster.masters import frozen, leader, leaders
from tests.cluster.reading import shown
from tests.local.chapters import live_through


@pytest.mark.ends_masters
def test_masters(make: Make, subtests: pytest.Subtests) -> None:
    live_through(
        subtests,
        make(),
        the_leader_is_killed_and_nobody_notices,
        a_leader_that_was_frozen_gives_no_order_when_it_thaws,
    )


def master_pod(name: str) -> Document:
    return shown("pods", name, SYSTEM)


def the_leader_is_killed_and_nobody_notices(job: ClusterJob) -> None:
    restart, _world = job.training(4)
    before = job.uids()
    kubectl("-n", SYSTEM, "delete", "pod", leader()["metadata"]["name"], "--grace-period=0", "--force")
    job.event("GenerationAdopted")
    steps = len(job.worlds()[restart][0])
    same, _on = job.training(4, more=steps + 20)
    assert same == restart
    assert job.keeps(before)
    job.kill(0)
    job.training(4, after=restart)


def a_leader_that_was_frozen_gives_no_order_when_it_thaws(job: ClusterJob) -> None:
    rolled_out("outrider-master")
    restart, _world = job.training(4)
    before, mark = job.uids(), job.mark()
    old = leader()
    restarts = old["status"]["containerStatuses"][0]["restartCount"]
    name = old["metadata"]["name"]
    with frozen(old):
        until(lambda: name not in [pod["metadata"]["name"] for pod in leaders()] and leaders(), "another leader")
        job.event("GenerationAdopted", after=mark)
        job.kill(3)
        newer, world = job.training(4, after=restart)
    until(lambda: master_pod(name)["status"]["containerStatuses"][0]["restartCount"] > restarts, "the old one to end")
    same, _on = job.training(4, more=len(world[0]) + 30)
    assert same == newer
    assert job.keeps(before)
    assert [pod["metadata"]["name"] for pod in leaders()] != [name]
