"""What the API server stores of hostile documents while no webhook looks at them harms no job beside them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document
from tests.cluster.cluster import DEADLINE, kubectl, until
from tests.cluster.conftest import Make
from tests.cluster.masters import counts, restarted
from tests.cluster.reading import listed
from tests.integration.kubernetes.hostile_documents import as_json, corpus, written_by_hand
from tests.integration.kubernetes.test_fences import is_decided

EVERY, LEAST_STORED = 5, 20
UNSEEN = "outrider.test/no-webhook"
WEBHOOKS = {
    "mutatingwebhookconfiguration": (2, "roles.outrider.dev"),
    "validatingwebhookconfiguration": (0, "elasticjobs.outrider.dev"),
}


def selection() -> list[Document]:
    """Some of those by hand. Their pods find no node: what is asked here is not what a kubelet makes of them."""
    by_hand = corpus()[: sum(1 for _ in written_by_hand())]
    chosen = [document for title, document in by_hand[::EVERY] if "3000" not in title]
    return [_without_node(document) for document in chosen]


def _without_node(document: Document) -> Document:
    for role in mapping(mapping(document["spec"]).get("replicaSpecs")).values():
        pod = mapping(mapping(mapping(role).get("template")).get("spec"))
        if pod:
            pod["nodeSelector"] = {UNSEEN: "true"}
    return {**document, "metadata": {"name": document["metadata"]["name"]}}


@contextmanager
def without_webhook(namespace: str) -> Iterator[None]:
    """For the ElasticJobs of this namespace, as while it is away."""
    kubectl("label", "namespace", namespace, f"{UNSEEN}=true")
    _look_where({"matchExpressions": [{"key": UNSEEN, "operator": "DoesNotExist"}]})
    try:
        yield
    finally:
        _look_where({})


def _look_where(selector: Document) -> None:
    for kind, (place, name) in WEBHOOKS.items():
        at = f"/webhooks/{place}"
        patch = [{"op": "test", "path": f"{at}/name", "value": name},
                 {"op": "add", "path": f"{at}/namespaceSelector", "value": selector}]  # fmt: skip
        kubectl("patch", kind, "outrider", "--type=json", "-p", json.dumps(patch))


def store(namespace: str, documents: list[Document], *options: str) -> subprocess.CompletedProcess[bytes]:
    """Those that the schema takes; it says of each what it is not, and so of others nothing."""
    given = as_json({"apiVersion": "v1", "kind": "List", "items": documents})
    command = ("kubectl", "-n", namespace, "create", "--validate=false", *options, "-f", "-")
    return subprocess.run(command, input=given, capture_output=True, timeout=DEADLINE)


def undecided(namespace: str) -> list[str]:
    return [f"{job['metadata']['name']}: {job.get('status')}" for job in bad(namespace) if not is_decided(job)]


def bad(namespace: str) -> list[Document]:
    return [job for job in listed("elasticjobs", namespace) if job["metadata"]["name"].startswith("bad-")]


@pytest.mark.exhaustive  # over a minute
@pytest.mark.alone  # others need the webhook
def test_hostile_documents_cost_the_job_beside_them_nothing_and_no_master_ends(make: Make) -> None:
    job, documents = make(), selection()
    restart, _ = job.training(4)
    before = counts()
    refused_by_webhook = documents[:1]
    assert store(job.namespace, refused_by_webhook, "--dry-run=server").returncode != 0
    with without_webhook(job.namespace):
        until(lambda: store(job.namespace, refused_by_webhook, "--dry-run=server").returncode == 0)
        said = store(job.namespace, documents).stderr.decode()
    assert len(bad(job.namespace)) >= LEAST_STORED, said
    until(lambda: not undecided(job.namespace), lambda: undecided(job.namespace))
    job.execute(job.pod("worker-1"), f"kill -9 {job.pid_of(job.pod('worker-1'), 'rank 3')}")
    job.training(4, after=restart)
    job.event("WorkerExited", "Rank 3 on worker-1 was killed by SIGKILL")
    assert undecided(job.namespace) == []
    assert restarted(before, counts()) == {}
