"""Pods that an owner makes after its job is over: the real Fleet over real HTTP and ZeroMQ."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from outrider.master.core.k8s.values.names import Document
from outrider.wire.codec import encode
from outrider.wire.ids import JobName, MemberId, PodUid, RankIndex, Role
from outrider.wire.messages.generation import Exited, Ready, Start, Started, WorkerExit
from outrider.wire.messages.membership import Finish, Hello, Refused, Welcome
from tests.integration.kubernetes.api_server import ApiServer, Asked, api_server
from tests.integration.kubernetes.served_fleet import served
from tests.integration.master.peer import Peer, peers
from tests.unit.master.core.k8s.elasticjob.test_beginning_anew import over

PODS = "/api/v1/namespaces/a/pods"
STATEFUL_SET = "/apis/apps/v1/namespaces/a/statefulsets/train"


def pod(uid: str, made: str) -> Document:
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "train", "uid": "owner", "controller": True}
    return {
        "metadata": {
            "name": f"train-{uid}",
            "namespace": "a",
            "uid": uid,
            "creationTimestamp": made,
            "labels": {"outrider.dev/job": "train"},
            "ownerReferences": [reference],
        },
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }


def hello(uid: str) -> bytes:
    return encode(
        Hello(JobName("a/train"), MemberId(f"train-{uid}"), PodUid(uid), Role("worker"), RankIndex(0), f"a@{uid}")
    )


async def test_a_new_pod_waits_and_is_taken_up_when_the_elasticjob_that_is_over_is_deleted(tmp_path: Path) -> None:
    async with api_server() as (server, api):
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 1}}
        server.put(STATEFUL_SET, {**owner, "metadata": {"name": "train", "namespace": "a", "uid": "owner"}})
        path = server.put_job({"apiVersion": "outrider.dev/v1alpha1", "kind": "ElasticJob", **over()})
        for uid, made in (("old", "2026-02-01T00:00:00Z"), ("new", "2026-03-02T00:00:00Z")):
            server.put(f"/api/v1/namespaces/a/pods/train-{uid}", pod(uid, made))
        async with served(server, api, tmp_path) as world:
            await server.until(lambda: world.fleet._ended._made)
            with peers(world.endpoint, world.keys, 2) as (old, new):
                answers = []
                for peer, uid in ((old, "old"), (new, "new")):
                    peer.say(hello(uid))
                    answers.append(await peer.hear())
                told, waits = answers
                assert isinstance(told, Refused)
                assert told.retry_after < 0, "it was part of it"
                assert isinstance(waits, Refused)
                assert waits.retry_after == 60, "its trainer is not ended"
                assert "kubectl delete ej train -n a" in waits.reason
                await server.until(
                    lambda: [each for each in server.all("/events/") if each["reason"] == "PodsWaitForRestart"]
                )
            server.remove(path)
            begun = await server.until(lambda: server.documents.get(path))
            assert begun["metadata"]["uid"] != "job"
            await server.until(lambda: "a/train" in world.fleet.running)
            world.assert_lives()


# -- restarts -----------------------------------------------------------------------------------------------------
LEFT = {
    "term": 1, "number": 7, "version": 3, "next_id": {}, "reserved": [1, 17], "stage": "running",
    "members": {"train-0": ["old", 0, None]},
}  # fmt: skip


def ended(kind: str, version: str, **saved: str) -> Document:
    """With one worker, whose pod was `old`."""
    job = over(kind, LEFT, exitCode=1, faults=[{"kind": "WorkerExited"}], lastFault={"kind": "WorkerExited"})
    job["spec"] = {
        "adopts": {"apiVersion": version, "kind": kind, "name": "train"},
        "replicaSpecs": {"worker": {"replicas": 1}},
    }
    job["status"]["generation"] = "1.7"
    job["status"]["saved"] |= saved
    return {"apiVersion": "outrider.dev/v1alpha1", "kind": "ElasticJob", **job}


def stateful_set(uid: str = "owner") -> Document:
    metadata = {"name": "train", "namespace": "a", "uid": uid}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": {"replicas": 1}}


def of_revision(uid: str, made: str, revision: str) -> Document:
    found = pod(uid, made)
    found["metadata"]["labels"]["controller-revision-hash"] = revision
    return found


def events(server: ApiServer, reason: str) -> list[Document]:
    return [each for each in server.all("/events/") if each["reason"] == reason]


async def trains(peer: Peer, uid: str) -> Start:
    """Its sidecar says Hello until it is taken, and is ready when it is."""
    peer.say(hello(uid))
    while not isinstance(heard := await peer.hear(), Start):
        if isinstance(heard, Refused):
            assert heard.retry_after >= 0, heard.reason
            await asyncio.sleep(0.05)
            peer.say(hello(uid))
        elif isinstance(heard, Welcome):
            peer.say(encode(Ready(20000, 1, "T0", "played", 7)))
    return heard


async def test_a_job_restarts_with_pods_of_another_revision(tmp_path: Path) -> None:
    async with api_server() as (server, api):
        server.put(STATEFUL_SET, stateful_set())
        path = server.put_job(ended("StatefulSet", "apps/v1", owner="owner", revision="one"))
        server.put(f"{PODS}/train-old", of_revision("old", "2026-02-01T00:00:00Z", "one"))
        server.put(f"{PODS}/train-same", of_revision("same", "2026-03-02T00:00:00Z", "one"))
        async with served(server, api, tmp_path) as world:
            await server.until(lambda: world.fleet._ended._made)
            as_it_ended = server.documents[path]
            assert as_it_ended["status"]["phase"] == "Failed", "the same revision begins nothing"
            server.put(f"{PODS}/train-new", of_revision("new", "2026-03-03T00:00:00Z", "two"))
            await server.until(lambda: "a/train" in world.fleet.running)
            with peers(world.endpoint, world.keys, 2) as (new, same):
                start = await trains(new, "new")
                assert start.generation.number == 18, "above those that there were, and that were reserved"
                world.fleet._job_changed("MODIFIED", as_it_ended)  # a watch that is late
                new.say(encode(Started(start.order, start.generation, (8,))))
                await server.until(lambda: server.documents[path]["status"]["phase"] == "Running")
                same.say(hello("same"))
                told = await same.hear()
                assert isinstance(told, Refused)
                assert "from before" in told.reason
                assert told.retry_after == 60, "its trainer is not ended"
                begun = server.documents[path]["status"]
                assert [each["id"] for each in begun["members"]] == ["train-new"]
                assert begun["saved"]["begunAnew"] == "2026-03-02T23:59:55Z"
                assert not {"exitCode", "lastFault"} & set(begun)
                assert not [each for each in begun["conditions"] if each["type"] == "Failed"]
                told_of = await server.until(lambda: events(server, "JobRestarted"))
                assert "the template of StatefulSet train has changed" in told_of[0]["message"]
            world.assert_lives()


async def test_its_next_end_keeps_its_revision_and_numbers_go_on_again(tmp_path: Path) -> None:
    async with api_server() as (server, api):
        server.put(STATEFUL_SET, stateful_set())
        path = server.put_job(ended("StatefulSet", "apps/v1", owner="owner", revision="one"))
        async with served(server, api, tmp_path) as world:
            await server.until(lambda: "a/train" in world.fleet._ended)
            server.put(f"{PODS}/train-new", of_revision("new", "2026-03-03T00:00:00Z", "two"))
            await server.until(lambda: "a/train" in world.fleet.running)
            with peers(world.endpoint, world.keys, 2) as (new, next_one):
                start = await trains(new, "new")
                new.say(encode(Started(start.order, start.generation, (8,))))
                new.say(encode(Exited(start.generation, (WorkerExit(0, 8, 0),), 0)))
                while not isinstance(await new.hear(), Finish):
                    pass
                done = of_revision("new", "2026-03-03T00:00:00Z", "two")
                server.put(f"{PODS}/train-new", {**done, "status": {"phase": "Succeeded"}})
                await server.until(lambda: "a/train" in world.fleet._ended, lambda: server.documents[path])
                status = server.documents[path]["status"]
                assert (status["phase"], status["exitCode"]) == ("Succeeded", 0)
                assert (status["saved"]["owner"], status["saved"]["revision"]) == ("owner", "two")
                server.put(f"{PODS}/train-next", of_revision("next", "2099-01-01T00:00:00Z", "three"))
                again = await trains(next_one, "next")
                assert again.generation.number > start.generation.number + 1
            world.assert_lives()


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
async def test_a_job_restarts_with_the_pods_of_an_owner_that_was_applied_again(kind: str, tmp_path: Path) -> None:
    version = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}[kind]
    reference = {"apiVersion": version, "kind": kind, "name": "train", "uid": "owner-2", "controller": True}
    async with api_server() as (server, api):
        if kind == "JobSet":
            child = {"spec": {"parallelism": 2}, "metadata": {"name": "train-a-0", "namespace": "a", "uid": "child"}}
            child["metadata"]["ownerReferences"] = [reference]
            server.put("/apis/batch/v1/namespaces/a/jobs/train-a-0", {"kind": "Job", **child})
            reference = {**reference, "apiVersion": "batch/v1", "kind": "Job", "name": "train-a-0", "uid": "child"}
            jobs = [{"name": "a", "replicas": 1, "template": {"spec": {"parallelism": 2}}}]
            spec: Document = {"replicatedJobs": jobs}
        else:
            spec = {"parallelism": 2}
        owner = {"apiVersion": version, "kind": kind, "metadata": {"name": "train", "namespace": "a", "uid": "owner-2"}}
        server.put(f"/apis/{version}/namespaces/a/{kind.lower()}s/train", {**owner, "spec": spec})
        path = server.put_job(ended(kind, version))
        new = pod("new", "2026-03-03T00:00:00Z")
        new["metadata"]["ownerReferences"] = [reference]
        async with served(server, api, tmp_path) as world:
            await server.until(lambda: "a/train" in world.fleet._ended)
            with peers(world.endpoint, world.keys, 1) as (peer,):
                server.put(f"{PODS}/train-new", new)
                await server.until(lambda: "a/train" in world.fleet.running)
                job = server.documents[path]
                assert [each["uid"] for each in job["metadata"]["ownerReferences"]] == ["owner-2"]
                assert job["spec"]["replicaSpecs"]["worker"]["replicas"] == 2
                assert job["metadata"]["uid"] == "job", "it is the same ElasticJob"
                peer.say(hello("new"))
                told = await peer.hear()
                assert not isinstance(told, Refused) or told.retry_after >= 0
            assert await server.until(lambda: events(server, "JobRestarted"))
            world.assert_lives()


@pytest.mark.parametrize("changes", ["spec", "status"])
async def test_an_elasticjob_that_changes_meanwhile_is_read_again(changes: str, tmp_path: Path) -> None:
    """Between the read and the write of its spec, or of its status."""
    async with api_server() as (server, api):
        server.put(STATEFUL_SET, stateful_set("owner-2"))
        path = server.put_job(ended("StatefulSet", "apps/v1"))
        left = ["one"]

        def refuse(asked: Asked) -> tuple[int, str] | None:
            wanted = ("PUT", f"{path}/status") if changes == "status" else ("PATCH", path)
            if left and (asked.method, asked.path) == wanted:
                left.clear()
                server.edit(path)
            return None

        server.refuse = refuse
        async with served(server, api, tmp_path) as world:
            await server.until(lambda: "a/train" in world.fleet._ended)
            new = pod("new", "2026-03-03T00:00:00Z")
            new["metadata"]["ownerReferences"][0]["uid"] = "owner-2"
            server.put(f"{PODS}/train-new", new)
            await server.until(lambda: "a/train" in world.fleet.running)
            assert not left
            assert server.documents[path]["metadata"]["ownerReferences"][0]["uid"] == "owner-2"
            await server.until(lambda: events(server, "JobRestarted"))
            assert len(events(server, "JobRestarted")) == 1
            world.assert_lives()


async def test_a_master_that_ended_between_the_two_writes_is_followed_by_one_that_makes_both(tmp_path: Path) -> None:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "owner-2", "controller": True}
    async with api_server() as (server, api):
        metadata = {"name": "train", "namespace": "a", "uid": "owner-2"}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"parallelism": 1}}
        server.put("/apis/batch/v1/namespaces/a/jobs/train", owner)
        job = ended("Job", "batch/v1", owner="owner", revision="one")
        job["metadata"]["ownerReferences"] = [{**reference, "controller": False}]
        path = server.put_job(job)
        new = pod("new", "2026-03-03T00:00:00Z")
        new["metadata"]["ownerReferences"] = [reference]
        server.put(f"{PODS}/train-new", new)
        async with served(server, api, tmp_path) as world:
            await server.until(lambda: "a/train" in world.fleet.running)
            assert server.documents[path]["status"]["saved"]["begunAnew"] == "2026-03-02T23:59:55Z"
            world.assert_lives()


async def test_a_further_attempt_of_the_same_job_is_refused_for_good(tmp_path: Path) -> None:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "owner", "controller": True}
    async with api_server() as (server, api):
        owner = {"kind": "Job", "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "new"}]}}}}
        metadata = {"name": "train", "namespace": "a", "uid": "owner"}
        server.put("/apis/batch/v1/namespaces/a/jobs/train", {**owner, "metadata": metadata})
        path = server.put_job(ended("Job", "batch/v1", owner="owner", revision="another"))
        new = pod("new", "2026-03-03T00:00:00Z")
        new["metadata"]["ownerReferences"] = [reference]
        server.put(f"{PODS}/train-new", new)
        async with served(server, api, tmp_path) as world:
            await server.until(lambda: world.fleet._ended._made)
            with peers(world.endpoint, world.keys, 1) as (peer,):
                peer.say(hello("new"))
                told = await peer.hear()
                assert isinstance(told, Refused)
                assert told.retry_after < 0
                assert "backoffLimit" in told.reason
            assert server.documents[path]["status"]["phase"] == "Failed"
            assert not [each for each in server.asked if each.method != "GET" and each.path.startswith(path)]
