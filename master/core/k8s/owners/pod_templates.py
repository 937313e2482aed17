"""The pod or the pod templates in a document, with the labels that its controller will add to the pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import JOB, KIND, MEMBER, ROLE, Document

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
WITH_TEMPLATE = ("Job", "StatefulSet", "Deployment", "ReplicaSet", "DaemonSet", "ReplicationController")
NAMED_LATER = {
    "CronJob": "each Job that it creates is a separate job without a name until then; only the webhook can "
    "inject their pods",
    "PodTemplate": "the controller that uses it gives the job its name; only the webhook can inject the pods",
}
"""Kinds whose templates cannot be injected because the job of the pods has no name yet, with the reason."""


@dataclass(frozen=True, slots=True)
class Template:
    """One pod or pod template in a document."""

    where: str
    """Name of the template for messages: `Job gpt`, `PyTorchJob gpt, Worker`."""
    holder: Document
    """Object with the metadata and spec of the pod."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels that the controller will add."""
    owner: Document | None = None
    """Document of the controller; None for a pod."""
    member_path: str = "metadata.name"
    """Field of a pod with its member's id."""
    counted_by: str = ""
    """Source of each pod's rank index, which the template lacks; empty if there is none."""
    unknown: str = ""
    """Why the template cannot be injected; empty if it can."""

    @property
    def is_ours(self) -> bool:
        """Whether the template is an ElasticJob's: the master requests the injection of its pods."""
        return JOB in self.labels

    def stand_in(self) -> Document:
        """A pod of this template, as far as it is known before its creation."""
        if self.owner is None:
            return self.holder
        metadata, owner = mapping(self.holder.get("metadata")), mapping(self.owner.get("metadata"))
        reference = {"kind": self.owner.get("kind"), "name": owner.get("name"), "controller": True}
        return {
            "metadata": {
                "labels": {**mapping(metadata.get("labels")), **self.labels},
                "annotations": mapping(metadata.get("annotations")),
                "ownerReferences": [reference],
            },
            "spec": self.holder.get("spec"),
        }


def templates_of(document: Document) -> Iterator[Template]:
    """The pod templates of a document; none if its kind is unknown or has no pods.

    Raises ValueError for an owner without a name.
    """
    kind, metadata, spec = str(document.get("kind")), mapping(document.get("metadata")), mapping(document.get("spec"))
    name = metadata.get("name")
    where = f"{kind} {name or metadata.get('generateName') or 'without a name'}"
    if kind == "Pod":
        yield Template(where, document)
        return
    found = [found for found in _found(kind, str(name), spec, where, document) if found.holder]
    if found and not name:
        raise ValueError(
            f"{kind}: metadata.name: Required value: the name that generateName will give is unknown; only the webhook "
            f"can inject the pods"
        )
    yield from found


def _found(kind: str, name: str, spec: Document, where: str, owner: Document) -> Iterator[Template]:
    if kind in NAMED_LATER:
        of_job = mapping(mapping(mapping(spec.get("jobTemplate")).get("spec")).get("template"))
        yield Template(where, of_job or mapping(owner.get("template")), owner=owner, unknown=NAMED_LATER[kind])
    elif kind == "JobSet":
        for job in map(mapping, entries(spec.get("replicatedJobs"))):
            template = mapping(mapping(mapping(job.get("template")).get("spec")).get("template"))
            counted = "its Job and completion index"
            yield Template(f"{where}, {job.get('name')}", template, {JOBSET_NAME: name}, owner, counted_by=counted)
    elif kind == KIND:
        for role, value in mapping(spec.get("replicaSpecs")).items():
            labels = {JOB: name, ROLE: str(role).lower()}
            path = f"metadata.labels['{MEMBER}']"
            yield Template(f"{where}, {role}", mapping(mapping(value).get("template")), labels, owner, path)
    elif by_role := replica_specs(spec):
        for role, value in by_role.items():
            labels = {REPLICA_TYPE: str(role).lower()}
            counted = "its role and replica index"
            template = mapping(mapping(value).get("template"))
            yield Template(f"{where}, {role}", template, labels, owner, counted_by=counted)
    else:  # a Job, a StatefulSet, or any controller with its template in the same field
        template = mapping(spec.get("template"))
        if kind in WITH_TEMPLATE or entries(mapping(template.get("spec")).get("containers")):
            indexed = kind == "Job" and spec.get("completionMode") == "Indexed"
            counted = "its ordinal" if kind == "StatefulSet" else "its completion index" if indexed else ""
            yield Template(where, template, owner=owner, counted_by=counted)


def replica_specs(spec: Document) -> Document:
    """`pytorchReplicaSpecs` or the like of the training operator's kinds; empty if there is none."""
    return next((mapping(value) for field, value in spec.items() if str(field).endswith("ReplicaSpecs")), {})
