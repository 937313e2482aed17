"""Pods of other controllers, as their users write them: a label is enough."""

from __future__ import annotations

from tests.cluster.cluster import Document, Pods, pod_spec
from tests.cluster.reading import shown

LABEL = {"outrider.dev/inject": "true"}


def template(pods: Pods, restart: str, container: Document | None = None, **annotations: str) -> Document:
    notes = {f"outrider.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec = {**pod_spec(pods.folder, **(container or {})), "restartPolicy": restart}
    return {"metadata": {"labels": {"app": pods.name, **LABEL}, "annotations": notes}, "spec": spec}


def stateful_set(pods: Pods, **annotations: str) -> Document:
    """Of two pods that are made at once."""
    spec = {
        "replicas": 2,
        "serviceName": pods.name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": pods.name}},
        "template": template(pods, "Always", **annotations),
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": pods.name}, "spec": spec}


def batch_job(
    pods: Pods, container: Document | None = None, completions: int | None = 2, **annotations: str
) -> Document:
    """A Job of two pods."""
    spec = {"parallelism": 2, "template": template(pods, "Never", container, **annotations)}
    spec |= {"completions": completions} if completions else {}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": pods.name}, "spec": spec}


def replicas(pods: Pods, kind: str) -> int:
    """What the spec of this owner, or of its ElasticJob, says."""
    spec = shown(kind, pods.name, pods.namespace)["spec"]
    return int(spec["replicas"] if kind == "statefulsets" else spec["replicaSpecs"]["worker"]["replicas"])
