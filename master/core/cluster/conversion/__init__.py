"""Other people's job files as ElasticJobs of ours: KubeDL's and Kubeflow's PyTorchJob, DLRover's ElasticJob.

What means the same here is carried over. What has no counterpart, or is not needed, is noted in a sentence that begins
with the path of the field: nothing is dropped in silence.
"""

from __future__ import annotations

from typing import NamedTuple

from master.core.cluster.conversion import dlrover, pytorchjob
from master.core.cluster.names import GROUP_VERSION, Document
from master.core.cluster.parts import mapping


class Converted(NamedTuple):
    document: Document
    notes: list[str]
    is_changed: bool
    """False of what is no job: it is left as it is."""


KINDS = {
    ("training.kubedl.io", "PyTorchJob"): pytorchjob.of_kubedl,
    ("kubeflow.org", "PyTorchJob"): pytorchjob.of_kubeflow,
    ("elastic.iml.github.io", "ElasticJob"): dlrover.converted,
}
KNOWN = ", ".join(f"{kind} of {group}" for group, kind in KINDS)


def converted(document: Document) -> Converted:
    """Raises ValueError with a sentence where it is a job and cannot be one of ours."""
    group, kind = str(document.get("apiVersion") or "").rpartition("/")[0], str(document.get("kind") or "")
    convert = KINDS.get((group, kind))
    if convert is None:
        return Converted(document, [], False)
    metadata = {k: v for k, v in mapping(document.get("metadata")).items() if k in KEPT and v}
    if not metadata.get("name"):
        raise ValueError("metadata.name: it is missing")
    spec, notes = convert(mapping(document.get("spec")))
    made = {"apiVersion": GROUP_VERSION, "kind": "ElasticJob", "metadata": metadata, "spec": spec}
    return Converted(made, notes, True)


KEPT = ("name", "namespace", "labels", "annotations")
