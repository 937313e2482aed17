"""Documents that the tests of the cluster's pure half start from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from outrider.master.core.k8s.values.names import Document

SEEN = Path(__file__).parent / "data/seen"
"""Pods as Kubernetes 1.20 showed them, with a `main` and an `outrider-sidecar` that is a plain container."""


def recorded(name: str) -> Document:
    found: Document = json.loads((SEEN / f"{name}.json").read_text())
    return found


def template(**spec: Any) -> Document:
    return {"spec": {"containers": [{"name": "main", "image": "train:1"}], **spec}}


def worker(**role: Any) -> Document:
    return {"template": template(), **role}


def job(roles: Document | None = None, name: str = "mnist", **spec: Any) -> Document:
    return {
        "apiVersion": "outrider.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {
            "name": name,
            "namespace": "research",
            "uid": "job-uid",
            "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"replicaSpecs": {"worker": worker(replicas=4)} if roles is None else roles, **spec},
    }


def with_container(**container: Any) -> Document:
    found = {"name": "main", "image": "train:1", **container}
    return job({"worker": {"replicas": 1, "template": {"spec": {"containers": [found]}}}})


def with_memory(request: object = None, limit: object = None) -> Document:
    amounts = {"requests": {"memory": request} if request is not None else {}}
    return with_container(resources=amounts | {"limits": {"memory": limit} if limit is not None else {}})
