"""A rank that is stopped, as by a debugger, while every pod of its job is well."""

from __future__ import annotations

import re

from tests.cluster.cluster import ClusterJob, until
from tests.cluster.conftest import Make
from tests.cluster.test_chaos import said
from tests.local.training import members

LIMIT = "6s"
"""For a step: many times what any of them takes, and far less than the 60 s that it has by default."""


def hangs(job: ClusterJob, pod: str, *words: str) -> str:
    """Stops the last rank of worker-1; what the Event with these words says of the hang."""
    assert "sent SIGSTOP to the worker process" in said(job, pod, "hang")
    node = job.pods()[pod]["spec"]["nodeName"]
    culprit = f"rank 3 on worker-1 (node {node}) is stopped (SIGSTOP, or a debugger); "
    told: str = job.event("RanksHang", culprit, *words)["message"]
    return told


def test_a_hung_rank_is_named_and_all_begin_again_in_place_and_once_more_and_its_pod_is_replaced(make: Make) -> None:
    job = make(recovery={"silentAfter": "10s", "hang": {"step": LIMIT}})
    restart, _ = job.training(4)
    pod, before = job.pod("worker-1"), job.uids()
    job.kubectl("annotate", "pod", pod, "outrider.dev/chaos=allowed")

    told = hangs(job, pod)
    assert re.search(r"; [123] others? waits? in gloo:\w+ number \d+ \(train\.py:\d+ main\)\.$", told), told
    job.event("HangSuspected", "4 ranks are asked where they are")
    restart, _ = job.training(4, after=restart)
    assert job.uids() == before, "it was borne in place"

    told = hangs(job, pod, "It was to blame for a hang before, so worker-1 is replaced.")
    _, new = job.training(4, after=restart)
    assert members(new) == [job.pod(f"worker-{i}") for i in (0, 0, 2, 2)]
    until(lambda: job.pods()[pod]["status"]["phase"] == "Failed", job.story)
    assert job.uids()[job.pod("worker-0")] == before[job.pod("worker-0")]
