"""The ElasticJob that stands for a job of another controller, whose pods are its members."""

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
    """The ElasticJob that stands for a Job, StatefulSet … of so many pods; `pod` is any of them, and what its
    annotations say holds for all. `least` and `most`: what the owner asks for itself (a PyTorchJob's elasticPolicy).
    It goes when its owner does.
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
    """An annotation's whole number; None where there is none, or it is none: the webhook has told the user."""
    text = str(notes.get(note, "")).strip()
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) and int(text) >= least else None
