"""Jobs of Kubernetes with a label of ours: they train as one world, and end as Jobs do."""

from __future__ import annotations

import pytest

from tests.cluster.budgets import allows
from tests.cluster.cluster import Pods, until
from tests.cluster.conftest import MakePods
from tests.cluster.owners import batch_job
from tests.cluster.reading import shown
from tests.cluster.test_memory import EAT, SMALL
from tests.local.chapters import live_through


def test_a_job_of_two_pods(pods: MakePods, subtests: pytest.Subtests) -> None:
    job = pods("plain-job")
    job.create(batch_job(job, {"resources": SMALL}, max="4"))
    live_through(
        subtests,
        job,
        it_trains_as_one_world,
        its_pods_are_counted_for_a_budget,
        its_completions_are_fixed_so_it_is_not_resized_and_says_so,
        a_rank_that_is_out_of_memory_begins_again_in_place_and_its_user_is_told_what_to_raise,
        it_completes,
    )


def it_trains_as_one_world(job: Pods) -> None:
    restart, _ = job.training(2)
    assert job.job()["spec"]["adopts"] == {"apiVersion": "batch/v1", "kind": "Job", "name": job.name}
    job.kill(1)
    job.training(2, after=restart)


def its_pods_are_counted_for_a_budget(job: Pods) -> None:
    """A Job has no scale subresource: a budget with maxUnavailable would let none of its pods go."""
    assert allows(job, 1)["spec"]["minAvailable"] == 1


def its_completions_are_fixed_so_it_is_not_resized_and_says_so(job: Pods) -> None:
    restart, world = job.training(2)
    job.kubectl("scale", "elasticjob", job.name, "--replicas=3")
    job.event("SpecRejected", f"Job {job.name} has 2 completions, which cannot be changed")

    def refused() -> bool:
        conditions = job.status().get("conditions") or ()
        return any(each["type"] == "Valid" and each["status"] == "False" for each in conditions)

    until(refused, job.story)
    same, _ = job.training(2, more=len(world[0]) + 30)
    assert same == restart


def a_rank_that_is_out_of_memory_begins_again_in_place_and_its_user_is_told_what_to_raise(job: Pods) -> None:
    restart, _ = job.training(2)
    before = job.uids()
    job.order(1, EAT)
    job.training(2, after=restart)
    job.event("OutOfMemory", "700Mi", "raise resources.limits.memory in the pod template of the controller")
    assert job.keeps(before)


def it_completes(job: Pods) -> None:
    job.end_well()
    until(lambda: shown("jobs", job.name, job.namespace)["status"].get("succeeded") == 2, job.story)


def test_a_job_that_kubernetes_gives_up_is_a_failed_job_here_too(pods: MakePods) -> None:
    job = pods("given-up")
    job.create(batch_job(job))
    job.training(2)
    job.kubectl("patch", "job", job.name, "--type=merge", "-p", '{"spec":{"activeDeadlineSeconds":1}}')
    assert "Job given-up has failed (DeadlineExceeded" in job.phase("Failed")["message"]


def test_scaling_a_job_without_completions_changes_its_parallelism_and_what_a_drain_may_take(pods: MakePods) -> None:
    job = pods("queue")
    job.create(batch_job(job, completions=None, min="1", max="4"))
    restart, _ = job.training(2)
    assert allows(job, 1)["spec"]["minAvailable"] == 1
    job.kubectl("scale", "elasticjob", job.name, "--replicas=3")
    until(lambda: shown("jobs", job.name, job.namespace)["spec"]["parallelism"] == 3, job.story)
    job.training(3, after=restart)
    assert allows(job, 1)["spec"]["minAvailable"] == 2
