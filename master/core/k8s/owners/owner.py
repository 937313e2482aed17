"""Whose pod is this? Does it ask to be injected, which job is it of, which rank index has it, how many are there?

Nothing is asked of the user that other controllers say already, by their labels and owner references. A rank index that
nobody says is None, and then the master gives the lowest free one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.master.core.k8s.owners import annotations as owners_annotations
from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.owners.pod_templates import JOBSET_NAME, REPLICA_TYPE
from outrider.master.core.k8s.owners.rank_index import needs_owners, rank_index_of
from outrider.master.core.k8s.owners.references import controller_of, meant_by
from outrider.master.core.k8s.owners.sizes import Size, size_of
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import INJECT, JOB, MAX, MEMBER, MIN, ROLE, Document
from outrider.master.core.spec import WORKER

__all__ = ["Size", "controller_of", "is_asked_for", "needs_owners", "place_of", "size_of", "uncounted"]

WELL_KNOWN = (JOBSET_NAME, "training.kubeflow.org/job-name", "batch.kubernetes.io/job-name", "job-name")
"""Labels with a job's name: the outermost controller first."""
TEMPLATE_HASH = "pod-template-hash"
UNCOUNTED = ("Deployment", "ReplicaSet", "DaemonSet", "ReplicationController")
"""Controllers of any number of equal pods, whose size we have no right to read."""


# -- the place of a pod -------------------------------------------------------------------------------------------
def place_of(
    pod: Document, namespace: str, namespace_labels: Mapping[str, Any], owners: Sequence[Document] = ()
) -> Place | None:
    """None: it does not ask for us. `owners`: documents of its owners and theirs, where they are known: they say what a
    pod of a JobSet or a Deployment does not. Raises ValueError, which names the annotation and what it may be."""
    metadata = mapping(pod.get("metadata"))
    labels, notes = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    if not is_asked_for(labels, namespace_labels):
        return None
    asked = owners_annotations.read(notes)
    return Place(
        job=asked.job if asked.job and not labels.get(JOB) else _job(metadata, labels, owners),
        namespace=namespace,
        role=str(labels.get(ROLE) or labels.get(REPLICA_TYPE) or WORKER).lower(),
        member=str(labels.get(MEMBER) or ""),
        rank_index=rank_index_of(pod, owners),
        nproc=asked.nproc,
        script=asked.script,
        pythonpath=asked.pythonpath,
        per_rank=asked.per_rank,
        container=asked.container,
        of_operator=bool(labels.get(REPLICA_TYPE)),
        max_restarts=asked.max_restarts,
        migration_dir=asked.migration_dir,
        checkpoint_memory=asked.checkpoint_memory,
        checkpoint_path=asked.checkpoint_path,
        atomic_save=asked.atomic_save,
    )


def uncounted(pod: Document) -> str:
    """Why it is no member, where nobody says how many there are: each would be taken for a job of one, and all but the
    first would wait for ever. Empty where it may be one."""
    metadata = mapping(pod.get("metadata"))
    notes, kind = mapping(metadata.get("annotations")), mapping(controller_of(metadata)).get("kind")
    if kind not in UNCOUNTED or MEMBER in mapping(metadata.get("labels")) or notes.get(MIN) or notes.get(MAX):
        return ""
    return (
        f"metadata.ownerReferences: it is a {kind}'s, and how many pods that wants is not read; say it by the "
        f"annotation {MAX}, or use a Job, a StatefulSet or an ElasticJob"
    )


def is_asked_for(labels: Mapping[str, Any], namespace_labels: Mapping[str, Any]) -> bool:
    """By the pod's own label, or by its namespace's where the pod does not say no."""
    own = labels.get(INJECT)
    return own == "true" or (own != "false" and namespace_labels.get(INJECT) == "enabled")


def _job(metadata: Document, labels: Document, owners: Sequence[Document]) -> str:
    for label in (JOB, *WELL_KNOWN):
        if labels.get(label):
            return owners_annotations.named(str(labels[label]), f"label {label}")
    reference = controller_of(metadata)
    if reference is None:
        name = str(metadata.get("name") or metadata.get("generateName") or "").rstrip("-")
        return owners_annotations.named(name, "the pod's name")
    kind, name = _top(reference, labels, owners)
    return owners_annotations.named(name, f"the name of the pod's owner, a {kind}")


def _top(reference: Document, labels: Document, owners: Sequence[Document]) -> tuple[str, str]:
    """Kind and name of the outermost owner. Of a Deployment's pod the ReplicaSet's name tells it, which a roll-out
    changes."""
    for _ in owners:
        above = controller_of(mapping(mapping(meant_by(reference, owners)).get("metadata")))
        if above is None:
            break
        reference = above
    kind, name = str(reference.get("kind")), str(reference.get("name") or "")
    suffix = f"-{labels.get(TEMPLATE_HASH)}"
    if kind == "ReplicaSet" and labels.get(TEMPLATE_HASH) and name.endswith(suffix):
        return "Deployment", name.removesuffix(suffix)
    return kind, name
