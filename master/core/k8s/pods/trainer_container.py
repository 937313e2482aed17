"""The choice of a pod's trainer container, before the injection and afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.pods.containers import OURS
from outrider.master.core.k8s.values.field_errors import unsupported
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import CONTAINER, PROXIES, Document

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
OPERATORS_CONTAINERS = ("pytorch", "tensorflow", "xgboost", "paddle", "mpi", "jax")
"""Names of the container in which the training operator runs a PyTorchJob, a TFJob and so on."""
FIRST = "it is the first container"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The index of the trainer container, with the reason of the choice."""

    index: int
    reason: str
    refused: str = ""
    """Why no container can be chosen; empty if one was."""


def chosen_of(containers: Sequence[Document], place: Place, annotations: Document) -> Chosen:
    """The trainer: by our annotation, else kubectl's, else the training operator's name, else the first container.

    Proxies of a service mesh are skipped.
    """
    names = [container.get("name") for container in containers]
    if place.container:
        if place.container not in names:
            return Chosen(0, "", unsupported(f"metadata.annotations[{CONTAINER}]", place.container, names))
        return Chosen(names.index(place.container), f"the annotation {CONTAINER} names it")
    default = annotations.get(DEFAULT_CONTAINER)
    if default in names:
        return Chosen(names.index(default), f"the annotation {DEFAULT_CONTAINER} names it")
    named = next((name for name in names if name in OPERATORS_CONTAINERS), None) if place.of_operator else None
    if named is not None:
        return Chosen(names.index(named), "the training operator runs the job in the container with this name")
    first = next((index for index, name in enumerate(names) if name not in PROXIES), 0)
    if first:
        return Chosen(first, f"it is the first container after the service mesh's {names[0]}")
    return Chosen(0, FIRST if len(names) > 1 else "it is the only container")


def trainer_name(pod: Document) -> str:
    """The trainer's name: by the annotation, else the first container that is neither ours nor a service mesh's."""
    listed = entries(mapping(pod.get("spec")).get("containers"))
    names = [c.get("name", "") for c in listed if isinstance(c, dict)]  # a template may not have been validated yet
    named = mapping(mapping(pod.get("metadata")).get("annotations")).get(CONTAINER)
    users = [name for name in names if name not in OURS]
    first = next((name for name in users if name not in PROXIES), users[0] if users else "")
    return str(named) if named in names else first
