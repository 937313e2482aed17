"""The place of a pod: whether it requests injection, and its job, role and rank index.

Other controllers provide all this by their labels and owner references, so the user need not. If none provides the rank
index, it is None, and the master assigns the lowest vacant one.
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
from outrider.master.core.k8s.values.field_errors import required
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import INJECT, JOB, MAX, MEMBER, MIN, ROLE, Document
from outrider.master.core.spec import WORKER

__all__ = ["Size", "controller_of", "is_asked_for", "needs_owners", "place_of", "size_of", "uncounted"]

WELL_KNOWN = (JOBSET_NAME, "training.kubeflow.org/job-name", "batch.kubernetes.io/job-name", "job-name")
"""Labels with a job's name, that of the outermost controller first."""
TEMPLATE_HASH = "pod-template-hash"
UNCOUNTED = ("Deployment", "ReplicaSet", "DaemonSet", "ReplicationController")
"""Controllers of equal pods whose size Outrider has no permission to read."""


# -- the place of a pod -------------------------------------------------------------------------------------------
def place_of(
    pod: Document, namespace: str, namespace_labels: Mapping[str, Any], owners: Sequence[Document] = ()
) -> Place | None:
    """The place of a pod; None if the pod does not request injection.

    `owners`: the documents of its owners and their owners, as far as they are known; they have facts that the pods of a
    JobSet or a Deployment lack. Raises ValueError with a field error of an annotation, a label or a name.
    """
    metadata = mapping(pod.get("metadata"))
    labels, notes = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    if not is_asked_for(labels, namespace_labels):
        return None
    requested = owners_annotations.read(notes)
    return Place(
        job=requested.job if requested.job and not labels.get(JOB) else _job(metadata, labels, owners),
        namespace=namespace,
        role=str(labels.get(ROLE) or labels.get(REPLICA_TYPE) or WORKER).lower(),
        member=str(labels.get(MEMBER) or ""),
        rank_index=rank_index_of(pod, owners),
        nproc=requested.nproc,
        script=requested.script,
        pythonpath=requested.pythonpath,
        per_rank=requested.per_rank,
        container=requested.container,
        of_operator=bool(labels.get(REPLICA_TYPE)),
        max_restarts=requested.max_restarts,
        migration_dir=requested.migration_dir,
        checkpoint_memory=requested.checkpoint_memory,
        checkpoint_path=requested.checkpoint_path,
        atomic_save=requested.atomic_save,
    )


def uncounted(pod: Document) -> str:
    """Why a pod cannot be a member because the number of pods is unknown; empty if it can be one.

    Each such pod would count as a job of one member, and all but the first would wait for ever.
    """
    metadata = mapping(pod.get("metadata"))
    notes, kind = mapping(metadata.get("annotations")), mapping(controller_of(metadata)).get("kind")
    if kind not in UNCOUNTED or MEMBER in mapping(metadata.get("labels")) or notes.get(MIN) or notes.get(MAX):
        return ""
    return required(
        f"metadata.annotations[{MAX}]",
        f"the number of pods of a {kind} is not read; set the annotation, or use a Job, a StatefulSet or an ElasticJob",
    )


def is_asked_for(labels: Mapping[str, Any], namespace_labels: Mapping[str, Any]) -> bool:
    """Whether a pod requests injection, by its own label, or by its namespace's label unless the pod opts out."""
    own = labels.get(INJECT)
    return own == "true" or (own != "false" and namespace_labels.get(INJECT) == "enabled")


def _job(metadata: Document, labels: Document, owners: Sequence[Document]) -> str:
    for label in (JOB, *WELL_KNOWN):
        if labels.get(label):
            return owners_annotations.named(str(labels[label]), f"metadata.labels[{label}]")
    reference = controller_of(metadata)
    if reference is None:
        name = str(metadata.get("name") or metadata.get("generateName") or "").rstrip("-")
        return owners_annotations.named(name, "metadata.name")
    kind, name = _top(reference, labels, owners)
    return owners_annotations.named(name, f"metadata.ownerReferences[{kind}].name")


def _top(reference: Document, labels: Document, owners: Sequence[Document]) -> tuple[str, str]:
    """Kind and name of the outermost owner. For a Deployment's pod the ReplicaSet's name contains the Deployment's; the
    ReplicaSet's own name changes with each roll-out."""
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
