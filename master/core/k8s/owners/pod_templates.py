"""The pods that a document asks for: itself, or its pod templates. They come with what its controller will write on the
pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import JOB, KIND, MEMBER, ROLE, Document

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
WITH_TEMPLATE = ("Job", "StatefulSet", "Deployment", "ReplicaSet", "DaemonSet", "ReplicationController")
NAMED_LATER = {
    "CronJob": "each Job that it makes is a job of its own, named when it is made: only the webhook can inject them",
    "PodTemplate": "whoever makes pods of it names their job: only the webhook can inject them",
}
"""Kinds whose pods' job has no name yet, and why nothing can be written into their templates."""


@dataclass(frozen=True, slots=True)
class Template:
    where: str
    """`Job gpt`, `PyTorchJob gpt, Worker`."""
    holder: Document
    """The object itself that has a pod's metadata and spec."""
    labels: dict[str, str] = field(default_factory=dict)
    """What its controller adds."""
    owner: Document | None = None
    member_path: str = "metadata.name"
    """Of a pod: where its member's id stands."""
    counted_by: str = ""
    """What of each pod its rank index is read from, which the template has not; empty where nothing says it."""
    unknown: str = ""
    """Why its pods cannot be injected before they are made; empty where they can."""

    @property
    def is_ours(self) -> bool:
        """Of an ElasticJob: the master asks for the injection of its pods."""
        return JOB in self.labels

    def stand_in(self) -> Document:
        """A pod of it, as far as it is known before it is made."""
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
    """None of a kind that has no pods, or is not known. Raises ValueError for an owner without a name."""
    kind, metadata, spec = str(document.get("kind")), mapping(document.get("metadata")), mapping(document.get("spec"))
    name = metadata.get("name")
    where = f"{kind} {name or metadata.get('generateName') or 'without a name'}"
    if kind == "Pod":
        yield Template(where, document)
        return
    found = [found for found in _found(kind, str(name), spec, where, document) if found.holder]
    if found and not name:
        raise ValueError(
            f"{kind}: metadata.name is missing, and what generateName makes of it is not known before its pods are "
            f"made: only the webhook can inject them"
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
    else:  # a Job, a StatefulSet, a DaemonSet, or any other controller that keeps its template where they do
        template = mapping(spec.get("template"))
        if kind in WITH_TEMPLATE or entries(mapping(template.get("spec")).get("containers")):
            indexed = kind == "Job" and spec.get("completionMode") == "Indexed"
            counted = "its ordinal" if kind == "StatefulSet" else "its completion index" if indexed else ""
            yield Template(where, template, owner=owner, counted_by=counted)


def replica_specs(spec: Document) -> Document:
    """`pytorchReplicaSpecs` and its like, of the training operator's kinds; empty where there is none."""
    return next((mapping(value) for field, value in spec.items() if str(field).endswith("ReplicaSpecs")), {})
