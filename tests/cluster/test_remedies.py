"""Faults of pods and processes, and what the API server is told to do about them."""

from __future__ import annotations

import json

from tests.cluster.cluster import kubectl, until
from tests.cluster.conftest import Make
from tests.cluster.reading import policy
from tests.local.training import members


def test_a_job_trains_and_succeeds_and_its_pods_with_it_and_goes_when_it_may(make: Make) -> None:
    job = make()
    job.training(4)
    job.end_well()
    status = job.phase("Succeeded")
    assert status["exitCode"] == 0
    until(lambda: {pod["status"]["phase"] for pod in job.pods().values()} == {"Succeeded"}, job.story)
    until(lambda: job.status()["replicaStatuses"]["worker"]["succeeded"] == 2, job.story)
    job.patch(runPolicy={"ttlSecondsAfterFinished": 1})
    until(lambda: not job.job() and not job.pods(), job.story)


def test_a_job_that_a_finalizer_holds_after_its_deletion_is_stopped_and_its_pods_end_in_order(make: Make) -> None:
    job = make()
    job.kubectl(
        "patch", "elasticjob", job.name, "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/held"]}}'
    )
    job.training(4)
    job.kubectl("delete", "elasticjob", job.name, "--wait=false")
    try:
        job.event("JobStopped", "its ElasticJob is being deleted")
        until(lambda: {pod["status"]["phase"] for pod in job.pods().values()} == {"Succeeded"}, job.story)
    finally:
        job.kubectl("patch", "elasticjob", job.name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    until(lambda: not job.job() and not job.pods(), job.story)


def test_a_crashed_process_changes_no_pod(make: Make) -> None:
    job = make()
    restart, _ = job.training(4)
    before = job.uids()
    job.execute(job.pod("worker-1"), f"kill -9 {job.pid_of(job.pod('worker-1'), 'rank 3')}")
    job.training(4, after=restart)
    job.event("WorkerExited", "Rank 3 on worker-1 was killed by SIGKILL")
    assert job.keeps(before)
    assert all(restarts == 0 for _, restarts in before.values())


def test_a_preempted_pod_is_replaced_by_the_next_id_with_its_rank_index(make: Make) -> None:
    job = make(replicas=4)
    restart, world = job.training(8)
    assert members(world)[0] == job.pod("worker-0")
    job.kubectl("delete", "pod", job.pod("worker-0"), "--grace-period=0", "--force")
    _, new = job.training(8, after=restart)
    assert members(new) == [job.pod(f"worker-{i}") for i in (4, 4, 1, 1, 2, 2, 3, 3)]
    assert job.pods()[job.pod("worker-4")]["metadata"]["labels"]["outrider.dev/rank-index"] == "0"
    assert job.pod("worker-0") not in job.pods()


def test_an_evicted_pod_leaves_when_a_checkpoint_is_written(make: Make) -> None:
    job = make(replicas=3, least=2)
    restart, _ = job.training(6)
    pod = job.pod("worker-1")
    eviction = {"apiVersion": policy(), "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{job.namespace}/pods/{pod}/eviction"
    kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction))
    _, smaller = job.training(4, after=restart)
    job.event("MemberLeaving", "worker-1")
    assert smaller[0][0].loaded >= job.resized_behind(), "the world changed behind a checkpoint"
    job.training(6, after=restart + 1)
