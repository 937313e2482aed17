"""`outrider dashboard --cluster` with the rights of who may edit a job, and of who may only look."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from typing import Any

from tests.cluster.chaos import OUTRIDER
from tests.cluster.cluster import DEADLINE, ClusterJob, until
from tests.cluster.conftest import Make
from tests.unit.cli.dashboard.conftest import Visit, visited
from tests.unit.cli.dashboard.conftest import until as until_said

PAGE = "/api/jobs/train"


def test_an_editor_follows_a_fault_and_changes_the_job_and_a_viewer_cannot(make: Make) -> None:
    job = make(replicas=2, least=1, most=2)
    job.training(4)
    asyncio.run(_edits(job))
    asyncio.run(_looks(job))


async def _edits(job: ClusterJob) -> None:
    async with _dashboard(job, "edit") as visit, visit.stream(PAGE) as messages:
        first = await until_said(messages, "job", lambda found: len(found["members"]) == 2 and found["world"] == 4)
        assert first["may"] == {"stop": True, "restart": False, "scale": True}
        assert first["sizes"] == [1, 2]
        assert {each["node"] for each in first["members"]} == {
            pod["spec"]["nodeName"] for pod in (await asyncio.to_thread(job.pods)).values()
        }
        await asyncio.to_thread(job.kill, 3)
        hurt = await until_said(messages, "job", lambda found: bool(found["faults"]))
        assert hurt["faults"][0]["kind"] == "WorkerExited"
        await until_said(messages, "events", lambda found: any(e["kind"] == "WorkerExited" for e in found["events"]))
        later = await until_said(messages, "job", lambda found: bool(found["faults"][0]["stages"]))
        assert "productive" in {piece["name"] for piece in later["account"]}
        await asyncio.to_thread(until, lambda: job.now()[0] > 0, job.story)
        _status, stack = await visit.get(f"{PAGE}/members/worker-0/stack")
        assert [rank["rank"] for rank in stack["ranks"]] == [0, 1], stack
        assert all(rank["stack"] for rank in stack["ranks"])
        _status, answer = await visit.get(f"{PAGE}/members/worker-9/lines")
        assert answer["problem"] == "worker-9 has no pod any more: its processes and its output went with it."
        status, answer = await visit.post(f"{PAGE}/scale", {"members": 7})
        assert status == 409
        assert answer["problem"] == "7 members: must be at most 2, by maxReplicas of train."
        status, answer = await visit.post(f"{PAGE}/scale", {"members": 1})
        assert (status, answer["sentence"]) == (200, "1 member is requested.")
        await until_said(messages, "job", lambda found: found["world"] == 2)
        status, answer = await visit.post(f"{PAGE}/stop")
        assert status == 200
        await until_said(messages, "job", lambda found: found["phase"] == "suspended")


async def _looks(job: ClusterJob) -> None:
    async with _dashboard(job, "view") as visit, visit.stream(PAGE) as messages:
        shown = await until_said(messages, "job")
        assert (shown["phase"], shown["may"]) == ("suspended", {"stop": False, "restart": False, "scale": False})
        status, answer = await visit.post(f"{PAGE}/scale", {"members": 2})
        assert (status, "may not patch the ElasticJob" in answer["problem"]) == (409, True), answer
        job.patch(suspend=False)
        again = await until_said(messages, "job", lambda found: found["phase"] == "running" and _running(found))
        _status, stack = await visit.get(f"{PAGE}/members/{_running(again)[0]}/stack")
        assert "may not" in stack["problem"], stack
        async with visit.stream("/api/jobs") as listed:
            (row,) = (await until_said(listed, "jobs"))["jobs"]
            assert row["job"] == "train"
        job.kubectl("delete", "elasticjob", "train", "--wait=false")
        gone = await until_said(messages, "trouble", lambda found: bool(found["sentence"]))
        assert "train" in gone["sentence"]
    async with _dashboard(job, None) as visit, visit.stream(PAGE) as messages:
        refused = await until_said(messages, "trouble", lambda found: bool(found["sentence"]))
        assert "your credentials may not get" in refused["sentence"]


def _running(found: Any) -> list[str]:
    return [each["id"] for each in found["members"] if each["state"] == "running"]


@contextlib.asynccontextmanager
async def _dashboard(job: ClusterJob, role: str | None) -> AsyncIterator[Visit]:
    """A visit to the page that the command serves with the kubeconfig of an account of this role."""
    config = await asyncio.to_thread(_kubeconfig, job, role)
    command = [OUTRIDER, "dashboard", "train", "--cluster", "-n", job.namespace]
    serving = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "KUBECONFIG": config})
    assert serving.stdout is not None
    try:
        printed = await asyncio.to_thread(serving.stdout.readline)
        found = re.search(r"http://\S+", printed)
        assert found is not None, printed
        async with visited(found[0]) as visit:
            yield await visit.opened()
    finally:
        serving.terminate()
        serving.wait(DEADLINE)
        serving.stdout.close()


def _kubeconfig(job: ClusterJob, role: str | None) -> str:
    account = f"who-may-{role or 'nothing'}"
    job.kubectl("create", "serviceaccount", account)
    if role is not None:
        who = f"--serviceaccount={job.namespace}:{account}"
        job.kubectl("create", "rolebinding", account, f"--clusterrole={role}", who)
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{job.namespace}/serviceaccounts/{account}/token"
    token = json.loads(job.kubectl("create", "--raw", path, "-f", "-", given=json.dumps(wanted)))["status"]["token"]
    config = json.loads(job.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    config["users"] = [{"name": account, "user": {"token": token}}]
    for each in config["contexts"]:
        each["context"]["user"] = account
    file = job.folder / f"kubeconfig-{account}"
    file.write_text(json.dumps(config))
    return str(file)
