"""Who else is in a pod whose containers share their processes, and what that opens to the trainer.

The sidecar watches the trainer's processes in a shared namespace, and all containers of a pod have the same one. A
trainer that is root, or runs as another container's user, may signal that one's processes and read their environment
and files. Nobody is kept from it: it is said, by name, until an annotation says that it is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import PROXIES, SHARES, SIDECAR_USER, Document

_KEEPERS = re.compile(r"vault|cloud-?sql|auth-?proxy|oauth|token|credential|secret|envoy|daprd|azwi|spire")
"""Words in the name or image of a container that holds keys or tokens for the pod."""
ALWAYS = "Always"
"""The restartPolicy of an init container that runs beside the others."""


def warnings(spec: Document, trainer: Document, notes: Document) -> Iterator[str]:
    """Of a pod as its user has it: ours are not in there. At most 250 characters each."""
    if spec.get("shareProcessNamespace") is not True:  # or its user has said so
        meant = {name.strip() for name in str(notes.get(SHARES) or "").split(",")}
        for container in _beside(spec, trainer):
            if (name := str(container.get("name"))) not in meant:
                yield _said(name, container)
    if SIDECAR_USER in (_user(trainer), _user(spec)):
        yield (
            f"the trainer runs as user {SIDECAR_USER}, as the sidecar does: it can read the sidecar's token; give it "
            f"another runAsUser"
        )


def _beside(spec: Document, trainer: Document) -> Iterator[Document]:
    for container in entries(spec.get("initContainers")):
        if mapping(container).get("restartPolicy") == ALWAYS:
            yield container
    for container in entries(spec.get("containers")):
        if container.get("name") != trainer.get("name"):
            yield container


def _said(name: str, container: Document) -> str:
    holds_keys = name in PROXIES or _KEEPERS.search(f"{name} {container.get('image')}".lower())
    opened = "the keys and tokens" if holds_keys else "environment and files"
    word = "DANGER: " if holds_keys else ""
    return (
        f"{word}containers share processes: a trainer that is root or its user can read {opened} of "
        f"{name[:63]} and signal it; if meant: annotation {SHARES}"
    )


def _user(document: Document) -> object:
    return mapping(document.get("securityContext")).get("runAsUser")
