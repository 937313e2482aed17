"""A rank that is stopped, as by a debugger, while every pod of its job is well."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

from tests.cluster.cluster import ClusterJob, until
from tests.cluster.conftest import Make
from tests.cluster.test_chaos import OUTRIDER, said
from tests.local.training import members


def hangs(job: ClusterJob, pod: str, *words: str) -> str:
    """Stops the last rank of worker-1; what the Event with these words says of the hang."""
    assert "sent SIGSTOP to the worker process" in said(job, pod, "hang")
    node = job.pods()[pod]["spec"]["nodeName"]
    culprit = f"rank 3 on worker-1 (node {node}) is stopped (SIGSTOP, or a debugger); "
    told: str = job.event("RanksHang", culprit, *words)["message"]
    return told


def test_a_hung_rank_is_named_and_all_begin_again_in_place_and_once_more_and_its_pod_is_replaced(make: Make) -> None:
    job = make(recovery={"silentAfter": "10s"})
    restart, _ = job.training(4)
    pod, before = job.pod("worker-1"), job.uids()
    job.kubectl("annotate", "pod", pod, "outrider.dev/chaos=allowed")

    told = hangs(job, pod)
    assert re.search(r"; [123] others? waits? in gloo:\w+ number \d+ \(train\.py:\d+ main\)\.$", told), told
    restart, _ = job.training(4, after=restart)
    assert job.keeps(before), "it was borne in place"

    told = hangs(job, pod, "It was to blame for a hang before, so worker-1 is replaced.")
    _, new = job.training(4, after=restart)
    assert members(new) == [job.pod(f"worker-{i}") for i in (0, 0, 2, 2)]
    until(lambda: job.pods()[pod]["status"]["phase"] == "Failed", job.story)
    assert job.uids()[job.pod("worker-0")] == before[job.pod("worker-0")]


def asked(job: ClusterJob, what: str, *whom: str) -> subprocess.CompletedProcess[str]:
    command = [OUTRIDER, what, *whom, "-n", job.namespace]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def answered(job: ClusterJob, what: str, *whom: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of the ranks by pod."""
    done = asked(job, what, *whom, "--json")
    assert done.returncode == 0, done.stderr
    return {pod: body["ranks"] for pod, body in json.loads(done.stdout)["members"].items()}


def test_the_ranks_of_a_job_s_pods_say_where_they_are_and_which_has_not_come(make: Make) -> None:
    job = make()
    job.training(4)
    first, second = job.pod("worker-0"), job.pod("worker-1")

    row, ranks = r"^rank (\d) \((\S+), pid \d+\), step ", [("0", first), ("1", first), ("2", second), ("3", second)]

    def stacks_of_all() -> bool:  # a rank without a turn in time has none
        told = asked(job, "stacks", "--pods-of", job.name).stdout
        return re.findall(row, told, re.MULTILINE) == ranks and told.count("train.py") >= 4

    until(stacks_of_all, job.story)

    def collectives_of_all() -> bool:
        rows = answered(job, "collectives", "--pods-of", job.name)
        ops = [(row.get("collective") or {}).get("op", "") for ranks in rows.values() for row in ranks]
        found = {pod: [row["rank"] for row in ranks] for pod, ranks in rows.items()}
        return found == {first: [0, 1], second: [2, 3]} and all(op.startswith("gloo:") for op in ops)

    until(collectives_of_all, job.story)
    assert [row["rank"] for row in answered(job, "stacks", "--pod", second)[second]] == [2, 3]

    job.kubectl("annotate", "pod", second, "outrider.dev/chaos=allowed")
    assert "sent SIGSTOP to the worker process" in said(job, second, "hang")
    missing = re.compile(r"^rank 3 has not come to gloo:\w+ number \d+ of group ", re.MULTILINE)
    until(lambda: missing.search(asked(job, "collectives", "--pods-of", job.name).stdout), job.story)

    nobody = asked(job, "stacks", "--pods-of", "digits-of-nobody")
    assert nobody.returncode == 2
    assert "there is no pod with the label outrider.dev/job=digits-of-nobody" in " ".join(nobody.stderr.split())
    job.kubectl("exec", first, "-c", "outrider-sidecar", "--", "rm", "/outrider/ask.sock")
    told = asked(job, "stacks", "--pods-of", job.name).stderr
    assert f"{first} did not answer: the sidecar does not take questions: No such file or directory" in told
