"""Other people's job files as ElasticJobs of ours: PyTorchJobs and TFJobs of KubeDL and Kubeflow, DLRover's ElasticJob.

What means the same here is carried over. What has no counterpart, or is not needed, is noted in a sentence that begins
with the path of the field: nothing is dropped in silence.
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
    """False of what is no job: it is left as it is."""


KINDS = {
    ("training.kubedl.io", "PyTorchJob"): pytorchjob.of_kubedl,
    ("kubeflow.org", "PyTorchJob"): pytorchjob.of_kubeflow,
    ("elastic.iml.github.io", "ElasticJob"): dlrover.converted,
    ("kubeflow.org", "TFJob"): tfjob.converted,
    ("training.kubedl.io", "TFJob"): tfjob.converted,
}
_LABEL = 'put the label outrider.dev/inject: "true" on its pod template'
_OTHER = "its ranks are not torchrun's: there is no counterpart"
INSTEAD = {
    ("elastic.iml.github.io", "ScalePlan"): "kubectl scale elasticjob NAME --replicas=N scales the workers",
    ("batch", "Job"): _LABEL,
    ("apps", "StatefulSet"): _LABEL,
    ("jobset.x-k8s.io", "JobSet"): _LABEL,
    (
        "trainer.kubeflow.org",
        "TrainJob",
    ): 'put the label outrider.dev/inject: "true" on the pods of its runtime',
    (
        "batch.volcano.sh",
        "Job",
    ): "write the task that trains as an ElasticJob with schedulerName: volcano in its template",
    ("kubeflow.org", "MPIJob"): _OTHER,
    ("kubeflow.org", "JAXJob"): _OTHER,
    ("kubeflow.org", "PaddleJob"): _OTHER,
    ("kubeflow.org", "XGBoostJob"): _OTHER,
    ("kubeflow.org", "MXJob"): _OTHER,
    ("ray.io", "RayJob"): _OTHER,
}
"""Jobs that are left as they are, and what to do."""
KNOWN = ", ".join(f"{kind} of {group}" for group, kind in KINDS)


def converted(document: Document) -> Converted:
    """Raises ValueError with a sentence where it is a job and cannot be one of ours."""
    group, kind = str(document.get("apiVersion") or "").rpartition("/")[0], str(document.get("kind") or "")
    convert = KINDS.get((group, kind))
    if convert is None:
        why = INSTEAD.get((group, kind))
        return Converted(document, [f"{kind} of {group}: left as it is: {why}."] if why else [], False)
    given = mapping(document.get("metadata"))
    metadata = {k: v for k, v in given.items() if k in KEPT and v}
    if not (metadata.get("name") or metadata.get("generateName")):
        raise ValueError("metadata.name: it is missing")
    if APPLIED in mapping(metadata.get("annotations")):
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != APPLIED}
    spec, notes = convert(mapping(document.get("spec")))
    made = {"apiVersion": GROUP_VERSION, "kind": "ElasticJob", "metadata": metadata, "spec": spec}
    if queue := mapping(metadata.get("labels")).get(KUEUE):
        _queue_pods(spec, queue)
        notes.append(
            f"metadata.labels[{KUEUE}]: Kueue knows no ElasticJobs: it is on the pods now, for Kueue's integration of "
            f"plain pods, which has to be switched on there."
        )
    return Converted(made, [*left_out(given, (*KEPT, *SERVERS), {}, "metadata"), *notes], True)


def _queue_pods(spec: Document, queue: object) -> None:
    for role in spec["replicaSpecs"].values():
        template = mapping(role.get("template"))
        metadata = mapping(template.get("metadata"))
        labels = {KUEUE: queue, **mapping(metadata.get("labels"))}
        role["template"] = {**template, "metadata": {**metadata, "labels": labels}}


def unpacked(documents: Iterable[Document]) -> Iterator[Document]:
    """Those in a List too, as `kubectl get -o yaml` prints several."""
    for document in documents:
        if document.get("kind") == "List":
            yield from unpacked(mapping(each) for each in entries(document.get("items")))
        else:
            yield document


KEPT = ("name", "generateName", "namespace", "labels", "annotations")
SERVERS = ("uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields", "clusterName")
"""Written by the API server, not by the user."""
KUEUE = "kueue.x-k8s.io/queue-name"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
