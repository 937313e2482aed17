"""StatefulSets with a label of ours: the pods' ordinals are their rank indexes, for good."""

from __future__ import annotations

import pytest

from tests.cluster.budgets import budget, evicted
from tests.cluster.cluster import Pods, until
from tests.cluster.conftest import MakePods
from tests.cluster.owners import replicas, stateful_set
from tests.cluster.reading import policy
from tests.local.chapters import live_through
from tests.local.training import members


def test_a_stateful_set_of_two_pods(pods: MakePods, subtests: pytest.Subtests) -> None:
    job = pods("ordinals")
    job.create(stateful_set(job, nproc_per_node="2", min="1", max="4"))
    live_through(
        subtests,
        job,
        its_ordinals_are_the_rank_indexes,
        a_pod_whose_label_is_taken_away_trains_no_more_and_comes_back_with_it,
        a_pod_whose_label_is_changed_trains_no_more_and_comes_back_with_it,
        scaling_reaches_its_owner_and_the_other_way_it_is_followed,
    )


def its_ordinals_are_the_rank_indexes(job: Pods) -> None:
    restart, world = job.training(4)
    by_ordinal = [f"{job.name}-{i}" for i in (0, 0, 1, 1)]
    assert members(world) == by_ordinal
    job.delete_pod(f"{job.name}-0")
    _, new = job.training(4, after=restart)
    assert members(new) == by_ordinal


def a_pod_whose_label_is_taken_away_trains_no_more_and_comes_back_with_it(job: Pods) -> None:
    is_taken_out_for_a_while(job, "-", "was removed")


def a_pod_whose_label_is_changed_trains_no_more_and_comes_back_with_it(job: Pods) -> None:
    is_taken_out_for_a_while(job, "=another", "is another now")


def is_taken_out_for_a_while(job: Pods, label: str, became: str) -> None:
    restart, _ = job.training(4)
    pod = f"{job.name}-1"
    job.kubectl("label", "pod", pod, "--overwrite", f"outrider.dev/job{label}")
    restart, alone = job.training(2, after=restart)
    assert set(members(alone)) == {f"{job.name}-0"}
    job.event("MemberLost", pod, f"its label outrider.dev/job {became}")
    job.kubectl("label", "pod", pod, "--overwrite", f"outrider.dev/job={job.name}")
    job.training(4, after=restart)


def scaling_reaches_its_owner_and_the_other_way_it_is_followed(job: Pods) -> None:
    restart, _ = job.training(4)
    job.kubectl("scale", "elasticjob", job.name, "--replicas=3")
    until(lambda: replicas(job, "statefulsets") == 3, job.story)
    restart, world = job.training(6, after=restart)
    assert f"{job.name}-2" in members(world)
    job.kubectl("scale", "statefulset", job.name, "--replicas=2")
    job.event("OwnerScaledByUser", "from 3 to 2 pods")
    until(lambda: replicas(job, "elasticjobs") == 2, job.story)
    restart, _ = job.training(4, after=restart)
    job.kubectl("scale", "elasticjob", job.name, "--replicas=1")
    restart, world = job.training(2, after=restart)
    until(lambda: replicas(job, "statefulsets") == 1 and set(job.pods()) == {f"{job.name}-0"}, job.story)
    same, _ = job.training(2, more=len(world[0]) + 30)
    assert same == restart, "the owner's pod was taken after the world had left it"


@pytest.mark.exhaustive
def test_pods_that_a_budget_of_the_users_selects_are_left_to_it(pods: MakePods) -> None:
    job = pods("with-budget")
    own = {"maxUnavailable": 2, "selector": {"matchLabels": {"app": job.name}}}
    kind = {"apiVersion": policy(), "kind": "PodDisruptionBudget"}
    job.create({**kind, "metadata": {"name": "the-users"}, "spec": own})
    job.create(stateful_set(job, nproc_per_node="2"))
    restart, _ = job.training(4)
    job.event("ForeignPDBFound", "the-users")
    assert not budget(job)
    assert not evicted(job, f"{job.name}-1"), "the API server evicts no pod that two budgets select"
    job.training(4, after=restart)
