"""Pods that a StatefulSet makes after its job is over: the real Fleet over real HTTP and ZeroMQ."""

from __future__ import annotations

from pathlib import Path

from master.core.cluster.names import Document
from tests.core.cluster.test_beginning_anew import over
from tests.kubernetes.api_server import api_server
from tests.kubernetes.served_fleet import served
from tests.master.peer import peers
from wire.codec import encode
from wire.ids import JobName, MemberId, PodUid, RankIndex, Role
from wire.messages import Hello, Refused

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
            await server.until(lambda: "a/train" in world.fleet._over)
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
                await server.until(lambda: [each for each in server.all("/events/") if each["reason"] == "PodsWait"])
            server.remove(path)
            begun = await server.until(lambda: server.documents.get(path))
            assert begun["metadata"]["uid"] != "job"
            await server.until(lambda: "a/train" in world.fleet.running)
            world.assert_lives()
