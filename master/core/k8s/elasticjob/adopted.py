"""The ElasticJob that represents a job of another controller, whose pods are its members."""

from __future__ import annotations

import re

from outrider.master.core.k8s.elasticjob.spec import signal_of
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import (
    ELASTIC_DATA,
    GROUP_VERSION,
    JOB,
    KEEP_GLOBAL_BATCH,
    KIND,
    MAX,
    MAX_RESTARTS,
    MIN,
    NODE_CHECK,
    NPROC,
    REQUIRE_RESUME,
    SAVE_SIGNAL,
    SPARES,
    Document,
)
from outrider.master.core.spec import WORKER

SWITCHES = (
    (ELASTIC_DATA, "elasticData"),
    (KEEP_GLOBAL_BATCH, "keepGlobalBatch"),
    (REQUIRE_RESUME, "requireResume"),
)


def adopting(owner: Document, size: int, pod: Document, least: int | None = None, most: int | None = None) -> Document:
    """The ElasticJob that represents a Job, a StatefulSet or another owner of `size` pods.

    `pod`: any pod of the owner; its annotations hold for all pods. `least` and `most`: the owner's own limits, such as
    a PyTorchJob's elasticPolicy. The ElasticJob is deleted with its owner.
    """
    metadata, of_pod = owner["metadata"], mapping(pod.get("metadata"))
    labels, notes = mapping(of_pod.get("labels")), mapping(of_pod.get("annotations"))
    worker: Document = {"replicas": size}
    worker["minReplicas"] = min(_counted(notes, MIN, 1) or least or size, size)
    worker["maxReplicas"] = max(_counted(notes, MAX, 1) or most or size, size)
    spec: Document = {
        "adopts": {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"]},
        "replicaSpecs": {str(WORKER): worker},
    }
    for note, field, least in ((NPROC, "nprocPerNode", 1), (SPARES, "spares", 0), (MAX_RESTARTS, "maxRestarts", 0)):
        if (count := _counted(notes, note, least)) is not None:
            spec[field] = count
    if _is_yes(notes, NODE_CHECK):
        spec["nodeCheck"] = {"enabled": True}
    for note, field in SWITCHES:
        if _is_yes(notes, note):
            spec[field] = True
    if signal := signal_of(notes.get(SAVE_SIGNAL)):
        spec["saveSignal"] = signal
    return {
        "apiVersion": GROUP_VERSION,
        "kind": KIND,
        "metadata": {
            "name": labels.get(JOB) or metadata["name"],
            "namespace": metadata.get("namespace") or of_pod.get("namespace") or "default",
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "spec": spec,
    }


def _is_yes(notes: Document, note: str) -> bool:
    return str(notes.get(note, "")).strip().lower() in ("true", "enabled", "1")


def _counted(notes: Document, note: str, least: int) -> int | None:
    """The integer in an annotation; None if it is missing or invalid, which the webhook has reported."""
    text = str(notes.get(note, "")).strip()
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) and int(text) >= least else None
