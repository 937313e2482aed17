"""A container that is too small: its place gets more memory, up to a most."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import ClusterJob, Document, until
from tests.cluster.conftest import Make
from tests.local.chapters import live_through
from tests.local.training import SAVE_EVERY, members

SMALL = {"requests": {"cpu": "50m", "memory": "350Mi"}, "limits": {"memory": "700Mi"}}
EAT = "x = bytearray(2_500_000_000)"


def memory_of(pod: Document) -> tuple[str | None, str | None]:
    """Request and limit of the trainer's container."""
    resources = next(c for c in pod["spec"]["containers"] if c["name"] == "trainer")["resources"]
    return (resources["requests"].get("memory"), resources["limits"].get("memory"))


def failed(job: ClusterJob, pod: str) -> Document:
    """A pod that has failed and is kept: nothing in it runs."""
    return until(lambda: (found := job.pods().get(pod)) and found["status"]["phase"] == "Failed" and found, job.story)


def trainer_end(pod: Document) -> Document:
    status = next(s for s in pod["status"]["containerStatuses"] if s["name"] == "trainer")
    ended: Document = status["state"]["terminated"]
    return ended


def test_memory(make: Make, subtests: pytest.Subtests) -> None:
    live_through(
        subtests,
        make(container={"resources": SMALL}, max_memory="1500Mi", restart_limit=2),
        a_rank_that_runs_out_of_memory_is_replaced_by_a_pod_with_twice_as_much,
        the_memory_belongs_to_the_rank_index,
        there_is_a_most_and_it_is_said_that_it_is_reached,
    )


def a_rank_that_runs_out_of_memory_is_replaced_by_a_pod_with_twice_as_much(job: ClusterJob) -> None:
    restart, _ = job.training(4, more=SAVE_EVERY + 1)
    job.order(3, EAT)
    _, world = job.training(4, after=restart)
    assert sorted(set(members(world))) == [job.pod("worker-0"), job.pod("worker-2")]
    assert world[0][0].loaded > 0, "it goes on from its checkpoint"
    new = job.pods()[job.pod("worker-2")]
    assert memory_of(new) == ("700Mi", "1400Mi")
    labels = new["metadata"]["labels"]
    assert (labels["outrider.dev/rank-index"], labels["outrider.dev/relaunches"]) == ("1", "1")
    old = failed(job, job.pod("worker-1"))
    assert memory_of(old) == ("350Mi", "700Mi")
    assert trainer_end(old)["exitCode"] == 137
    job.event("MemoryRaised", "The replacement of worker-1 gets 1400Mi instead of 700Mi")
    job.event("MemberFailed", "worker-1", "out of memory")
    until(lambda: job.status().get("memory") == {"1": "1400Mi"}, job.story)
    shown = {m["id"]: m["memory"] for m in job.status()["members"]}
    assert shown == {"worker-0": "700Mi", "worker-1": "700Mi", "worker-2": "1400Mi"}


def the_memory_belongs_to_the_rank_index(job: ClusterJob) -> None:
    restart, _ = job.training(4)
    job.delete_pod(job.pod("worker-2"))
    job.training(4, after=restart)
    third = job.pods()[job.pod("worker-3")]
    assert memory_of(third) == ("700Mi", "1400Mi")
    assert third["metadata"]["labels"]["outrider.dev/relaunches"] == "1", "a deleted pod uses no budget"


def there_is_a_most_and_it_is_said_that_it_is_reached(job: ClusterJob) -> None:
    restart, _ = job.training(4)
    job.order(3, EAT)
    again, _ = job.training(4, after=restart)
    assert again > restart
    assert memory_of(job.pods()[job.pod("worker-4")]) == ("750Mi", "1500Mi")
    job.order(3, EAT)
    status = job.phase("Failed")
    assert "it had 1500Mi, and that is all that it may have" in status["message"]
