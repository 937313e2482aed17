"""How large a document may be that a tenant writes. All jobs share one master and one webhook, and whatever either does
with a document takes time and memory by its size; the API server stores 1.5 MiB of any.

Counted is what its user wrote: neither the status nor the API server's notes of who wrote which field.
"""

from __future__ import annotations

from typing import Any, Final

from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document

MOST_BYTES: Final = 256 * 1024
"""Of all names and texts together, a character as one. `kubectl apply` keeps all of it once more as an annotation."""
MOST_VALUES: Final = 10_000
"""Entries of objects and lists, however deep. The largest template seen of others has some 600."""
IDENTITY = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
             "finalizers", "ownerReferences", "labels")  # fmt: skip
OURS: Final = "outrider.dev/"
NOT_THEIRS: Final = ("status", "metadata.managedFields")
"""What the API server, kubelets and masters write."""
UNREAD: Final = "outrider.dev/unread"
"""Beside `spec` of what is left of a document that is too large (`kept`): why it was not read."""


def too_large(document: object) -> str:
    """A sentence that begins with the field at which it became too large; empty where it did not. What this costs is
    bounded, however large the document is."""
    if not isinstance(document, dict):
        return ""
    if isinstance(said := document.get(UNREAD), str):
        return said
    size = values = 0
    waiting: list[tuple[str, Any]] = [(name, value) for name, value in document.items() if name not in NOT_THEIRS]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict | list):
            values += len(value)
        if values > MOST_VALUES or size > MOST_BYTES:
            most = f"{MOST_VALUES} values" if values > MOST_VALUES else f"{MOST_BYTES >> 10} KiB"
            return f"{path[:200]}: with it the document has more than {most}, and so it is not read"
        if isinstance(value, list):
            waiting += [(f"{path}[{number}]"[:300], each) for number, each in enumerate(value)]
        elif isinstance(value, dict):
            size += sum(len(str(name)) for name in value)
            inner = ((f"{path}.{name}"[:300], each) for name, each in value.items())
            waiting += [each for each in inner if each[0] not in NOT_THEIRS]
    return ""


def kept(document: Document) -> Document:
    """What a watch keeps of it: all but the API server's notes; of one that is too large who it is and its status."""
    metadata = mapping(document.get("metadata"))
    said = too_large(document)
    if not said:
        return {**document, "metadata": {k: v for k, v in metadata.items() if k != "managedFields"}}
    small = {name: value for name, value in metadata.items() if name in IDENTITY and not too_large({name: value})}
    ours = {name: text for name, text in mapping(metadata.get("annotations")).items() if str(name).startswith(OURS)}
    left: Document = {name: document[name] for name in ("apiVersion", "kind", "status") if name in document}
    left["metadata"] = small if too_large(ours) else {**small, "annotations": ours}
    adopts = {"adopts": mapping(document.get("spec")).get("adopts")}
    left["spec"] = adopts if adopts["adopts"] is not None and not too_large(adopts) else {}
    return {**left, UNREAD: said}
