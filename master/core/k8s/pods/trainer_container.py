"""Which container of a pod is the trainer: before it is injected, and afterwards, when an annotation names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.pods.containers import OURS
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import CONTAINER, PROXIES, Document

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
OPERATORS_CONTAINERS = ("pytorch", "tensorflow", "xgboost", "paddle", "mpi", "jax")
"""Of its PyTorchJob, TFJob …: the one that the operator itself takes for the job's."""
FIRST = "it is the first container"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which container is the trainer. `refused`: why none can be said to be."""

    index: int
    reason: str
    refused: str = ""


def chosen_of(containers: Sequence[Document], place: Place, annotations: Document) -> Chosen:
    """What was said to us, else what kubectl was told, else the operator's, else the first that is no mesh's proxy."""
    names = [container.get("name") for container in containers]
    if place.container:
        if place.container not in names:
            there = ", ".join(map(str, names))
            return Chosen(
                0, "", f"annotation {CONTAINER} names {place.container}, and the pod's containers are {there}"
            )
        return Chosen(names.index(place.container), f"annotation {CONTAINER} names it")
    default = annotations.get(DEFAULT_CONTAINER)
    if default in names:
        return Chosen(names.index(default), f"annotation {DEFAULT_CONTAINER} names it")
    named = next((name for name in names if name in OPERATORS_CONTAINERS), None) if place.of_operator else None
    if named is not None:
        return Chosen(names.index(named), "the training operator runs a job in the container of this name")
    first = next((index for index, name in enumerate(names) if name not in PROXIES), 0)
    if first:
        return Chosen(first, f"it is the first container that is no service mesh's, as {names[0]} is")
    return Chosen(0, FIRST if len(names) > 1 else "it is the only container")


def trainer_name(pod: Document) -> str:
    """The container that the annotation names, else the first that is not ours and no mesh's."""
    listed = entries(mapping(pod.get("spec")).get("containers"))
    names = [c.get("name", "") for c in listed if isinstance(c, dict)]  # of a template that nobody has looked at yet
    wanted = mapping(mapping(pod.get("metadata")).get("annotations")).get(CONTAINER)
    users = [name for name in names if name not in OURS]
    first = next((name for name in users if name not in PROXIES), users[0] if users else "")
    return str(wanted) if wanted in names else first
