"""Jobs that shrink, find no room, and rest."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.cluster.cluster import SLOT, until
from tests.cluster.conftest import Make
from tests.local.training import members


def test_a_launcher_that_is_hung_up_may_not_be_replaced_and_the_others_go_on(make: Make) -> None:
    job = make(replicas=4, least=3, restart_limit=0, nprocPerNode=1)
    restart, _ = job.training(4)
    pod = job.pod("worker-1")
    job.execute(pod, f"kill -HUP {job.pid_of(pod, 'outrider-tmpl')}")
    _, three = job.training(3, after=restart)
    assert sorted(members(three)) == [job.pod(f"worker-{i}") for i in (0, 2, 3)]
    until(lambda: job.pods()[pod]["status"]["phase"] == "Failed", job.story)
    assert job.kubectl("get", "pod", pod, "--no-headers").split()[2] == "Error"
    assert job.pod("worker-4") not in job.pods()
    lines = job.rendezvous(job.pod("worker-0"))[-2:]  # on a busy machine the first world may have had three
    assert [line["group_world_size"] for line in lines] == ["4", "3"]
    assert [line["restart_count"] for line in lines] == [str(restart), str(restart + 1)]


def test_three_of_four_train_while_one_finds_no_room_and_four_when_there_is_some(
    make: Make, slots: Callable[[int], None]
) -> None:
    slots(3)
    wanted = {"requests": {"cpu": "50m", "memory": "200Mi", SLOT: "1"}, "limits": {SLOT: "1"}}
    job = make(replicas=4, least=2, nprocPerNode=1, container={"resources": wanted})
    restart, three = job.training(3)
    job.event("FailedScheduling")
    assert sorted(pod["status"]["phase"] for pod in job.pods().values()) == ["Pending", "Running", "Running", "Running"]
    slots(4)
    grown, _ = job.training(4, after=restart)
    first = job.rendezvous(members(three)[0])[-2:]
    sizes = [(line["restart_count"], line["group_world_size"]) for line in first]
    assert sizes == [(str(restart), "3"), (str(grown), "4")]


def test_a_suspended_job_rests_and_goes_on_where_it_was(make: Make) -> None:
    """In the words of a PyTorchJob, with a master."""
    job = make(in_their_words=True, elasticPolicy={"rdzvBackend": "etcd", "minReplicas": 1, "maxReplicas": 2})
    restart, world = job.training(4)
    assert sorted(job.pods()) == [job.pod("master-0"), job.pod("worker-0")]
    assert next(step.member for step in world[0]) == job.pod("master-0"), "it has rank 0"
    service = json.loads(job.kubectl("get", "service", job.pod("master-0"), "-o", "json"))
    assert service["spec"]["ports"][0]["port"] == 23456
    job.event("FieldIgnored", "rdzvBackend", "ignored")
    job.patch(suspend=True)
    job.phase("Suspended")
    until(lambda: not job.pods(), job.story)
    reached = max(step.step for step in job.steps())
    conditions = {each["type"]: each["status"] for each in job.status()["conditions"]}
    assert (conditions["Suspended"], conditions["Running"]) == ("True", "False")
    mark = {"key": "outrider.test/admitted", "operator": "Exists"}
    admitted = {"template": {"spec": {"tolerations": [mark]}}}
    job.patch(suspend=False, replicaSpecs={"master": admitted, "worker": admitted})
    _, new = job.training(4, after=restart)
    assert new[0][0].loaded > reached - 20
    assert all(mark in pod["spec"]["tolerations"] for pod in job.pods().values()), "what a queue adds when it admits"
