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
    restart, before = job.training(4, more=SAVE_EVERY + 1)
    job.order(3, EAT)
    _, world = job.training(4, after=restart)
    first, old, new = members(before)[0], members(before)[3], members(world)[3]
    assert set(members(world)) == {first, new}
    assert new != old
    assert world[0][0].loaded > 0, "it goes on from its checkpoint"
    assert memory_of(job.pods()[new]) == ("700Mi", "1400Mi")
    labels = job.pods()[new]["metadata"]["labels"]
    assert (labels["outrider.dev/rank-index"], labels["outrider.dev/relaunches"]) == ("1", "1")
    ended = failed(job, old)
    assert memory_of(ended) == ("350Mi", "700Mi")
    assert trainer_end(ended)["exitCode"] == 137
    job.event("MemoryLimitRaised", f"{job.member(old)} ran out of memory. Its replacement gets 1400Mi instead of 700Mi")
    job.event("MemberFailed", job.member(old), "out of memory")
    until(lambda: job.status().get("memory") == {"1": "1400Mi"}, job.story)
    shown = {job.pod(member["id"]): member["memory"] for member in job.status()["members"]}
    assert shown.items() >= {first: "700Mi", old: "700Mi", new: "1400Mi"}.items()


def the_memory_belongs_to_the_rank_index(job: ClusterJob) -> None:
    restart, world = job.training(4)
    job.delete_pod(members(world)[3])
    _, world = job.training(4, after=restart)
    third = job.pods()[members(world)[3]]
    assert memory_of(third) == ("700Mi", "1400Mi")
    assert third["metadata"]["labels"]["outrider.dev/relaunches"] == "1", "a deleted pod uses no budget"


def there_is_a_most_and_it_is_said_that_it_is_reached(job: ClusterJob) -> None:
    restart, _ = job.training(4)
    job.order(3, EAT)
    again, world = job.training(4, after=restart)
    assert again > restart
    assert memory_of(job.pods()[members(world)[3]]) == ("750Mi", "1500Mi")
    job.order(3, EAT)
    status = job.phase("Failed")
    assert "its replacement gets the same maximum, 1500Mi" in status["message"]
