"""Warnings about other containers in a pod whose processes the trainer can see after the injection.

The sidecar watches the trainer's processes in a shared process namespace, which all containers of the pod share. A
trainer that runs as root, or as another container's user, can signal that container's processes and read their
environment and files. The injection does not prevent that: it warns by name until an annotation permits it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import PROXIES, SHARES, SIDECAR_USER, Document

_KEEPERS = re.compile(r"vault|cloud-?sql|auth-?proxy|oauth|token|credential|secret|envoy|daprd|azwi|spire")
"""Words in the name or image of a container that has keys or tokens for the pod."""
ALWAYS = "Always"
"""restartPolicy of an init container that runs beside the others (a native sidecar)."""


def warnings(spec: Document, trainer: Document, notes: Document) -> Iterator[str]:
    """The warnings about a pod before its injection, each of at most 250 characters."""
    if spec.get("shareProcessNamespace") is not True:  # otherwise the user has set it
        permitted = {name.strip() for name in str(notes.get(SHARES) or "").split(",")}
        for container in _beside(spec, trainer):
            if (name := str(container.get("name"))) not in permitted:
                yield _warning(name, container)
    if SIDECAR_USER in (_user(trainer), _user(spec)):
        yield (
            f"the trainer has the sidecar's user {SIDECAR_USER}, so it can read the sidecar's token; set another "
            f"runAsUser"
        )


def _beside(spec: Document, trainer: Document) -> Iterator[Document]:
    for container in entries(spec.get("initContainers")):
        if mapping(container).get("restartPolicy") == ALWAYS:
            yield container
    for container in entries(spec.get("containers")):
        if container.get("name") != trainer.get("name"):
            yield container


def _warning(name: str, container: Document) -> str:
    holds_keys = name in PROXIES or _KEEPERS.search(f"{name} {container.get('image')}".lower())
    opened = "the keys and tokens" if holds_keys else "environment and files"
    word = "DANGER: " if holds_keys else ""
    return (
        f"{word}containers share processes: a trainer that runs as root or as its user can read {opened} of "
        f"{name[:63]} and signal it; permit that by annotation {SHARES}"
    )


def _user(document: Document) -> object:
    return mapping(document.get("securityContext")).get("runAsUser")
