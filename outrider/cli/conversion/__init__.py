"""Converts PyTorchJobs and TFJobs of KubeDL and Kubeflow, and DLRover's ElasticJobs, to our ElasticJobs.

Fields with the same meaning here are converted. For each other field there is a note that begins with the field's path:
nothing is left out silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from outrider.cli.conversion import dlrover, pytorchjob, tfjob
from outrider.cli.conversion.leaving import left_out
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import GROUP_VERSION, Document


class Converted(NamedTuple):
    document: Document
    notes: list[str]
    is_changed: bool
    """Whether the document was a job and was converted; other documents stay unchanged."""


KINDS = {
    ("training.kubedl.io", "PyTorchJob"): pytorchjob.of_kubedl,
    ("kubeflow.org", "PyTorchJob"): pytorchjob.of_kubeflow,
    ("elastic.iml.github.io", "ElasticJob"): dlrover.converted,
    ("kubeflow.org", "TFJob"): tfjob.converted,
    ("training.kubedl.io", "TFJob"): tfjob.converted,
}
_LABEL = 'set the label outrider.dev/inject: "true" on its pod template'
_OTHER = "its ranks do not run under torchrun, so it has no counterpart"
INSTEAD = {
    ("elastic.iml.github.io", "ScalePlan"): "kubectl scale elasticjob NAME --replicas=N scales the workers",
    ("batch", "Job"): _LABEL,
    ("apps", "StatefulSet"): _LABEL,
    ("jobset.x-k8s.io", "JobSet"): _LABEL,
    (
        "trainer.kubeflow.org",
        "TrainJob",
    ): 'set the label outrider.dev/inject: "true" on the pods of its runtime',
    (
        "batch.volcano.sh",
        "Job",
    ): "convert the task that trains to an ElasticJob with schedulerName: volcano in its template",
    ("kubeflow.org", "MPIJob"): _OTHER,
    ("kubeflow.org", "JAXJob"): _OTHER,
    ("kubeflow.org", "PaddleJob"): _OTHER,
    ("kubeflow.org", "XGBoostJob"): _OTHER,
    ("kubeflow.org", "MXJob"): _OTHER,
    ("ray.io", "RayJob"): _OTHER,
}
"""Kinds of jobs that are not converted, and what to do instead."""
KNOWN = ", ".join(f"{kind} of {group}" for group, kind in KINDS)


def converted(document: Document) -> Converted:
    """The document as an ElasticJob; ValueError if it is a job that cannot be converted."""
    group, kind = str(document.get("apiVersion") or "").rpartition("/")[0], str(document.get("kind") or "")
    convert = KINDS.get((group, kind))
    if convert is None:
        why = INSTEAD.get((group, kind))
        return Converted(document, [f"{kind} of {group}: not converted: {why}."] if why else [], False)
    given = mapping(document.get("metadata"))
    metadata = {k: v for k, v in given.items() if k in KEPT and v}
    if not (metadata.get("name") or metadata.get("generateName")):
        raise ValueError("metadata.name: Required value")
    if APPLIED in mapping(metadata.get("annotations")):
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != APPLIED}
    spec, notes = convert(mapping(document.get("spec")))
    made = {"apiVersion": GROUP_VERSION, "kind": "ElasticJob", "metadata": metadata, "spec": spec}
    if queue := mapping(metadata.get("labels")).get(KUEUE):
        _queue_pods(spec, queue)
        notes.append(
            f"metadata.labels[{KUEUE}]: moved to the pods, because Kueue does not know ElasticJobs: enable Kueue's "
            f"integration of plain pods."
        )
    return Converted(made, [*left_out(given, (*KEPT, *SERVERS), {}, "metadata"), *notes], True)


def _queue_pods(spec: Document, queue: object) -> None:
    for role in spec["replicaSpecs"].values():
        template = mapping(role.get("template"))
        metadata = mapping(template.get("metadata"))
        labels = {KUEUE: queue, **mapping(metadata.get("labels"))}
        role["template"] = {**template, "metadata": {**metadata, "labels": labels}}


def unpacked(documents: Iterable[Document]) -> Iterator[Document]:
    """The documents, and the items of each List among them, which `kubectl get -o yaml` prints."""
    for document in documents:
        if document.get("kind") == "List":
            yield from unpacked(mapping(each) for each in entries(document.get("items")))
        else:
            yield document


KEPT = ("name", "generateName", "namespace", "labels", "annotations")
SERVERS = ("uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields", "clusterName")
"""Fields of the metadata that the API server writes, not the user."""
KUEUE = "kueue.x-k8s.io/queue-name"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
