"""The maximum size of a document that a tenant writes.

All jobs share one master and one webhook, and the time and memory that both spend on a document grow with its size; the
API server stores documents of up to 1.5 MiB. Only what the user wrote counts: not the status, and not
`metadata.managedFields`.
"""

from __future__ import annotations

from typing import Any, Final

from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document

MOST_BYTES: Final = 256 * 1024
"""Maximum total of all names and strings in characters. `kubectl apply` stores all of it again as an annotation."""
MOST_VALUES: Final = 10_000
"""Maximum number of entries of objects and lists, at any depth. The largest template seen in practice has about 600."""
IDENTITY = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
             "finalizers", "ownerReferences", "labels")  # fmt: skip
OURS: Final = "outrider.dev/"
NOT_THEIRS: Final = ("status", "metadata.managedFields")
"""Fields that the API server, kubelets and masters write."""
UNREAD: Final = "outrider.dev/unread"
"""Field in what `kept` leaves of a document that is too large: the reason why the document was not read."""


def too_large(document: object) -> str:
    """A field error for the field at which the document becomes too large; empty if the document is not too large.

    The cost is bounded, however large the document is.
    """
    if not isinstance(document, dict):
        return ""
    if isinstance(problem := document.get(UNREAD), str):
        return problem
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
            return f"{path[:200]}: Too long: with this field the document exceeds {most} and is not read"
        if isinstance(value, list):
            waiting += [(f"{path}[{number}]"[:300], each) for number, each in enumerate(value)]
        elif isinstance(value, dict):
            size += sum(len(str(name)) for name in value)
            inner = ((f"{path}.{name}"[:300], each) for name, each in value.items())
            waiting += [each for each in inner if each[0] not in NOT_THEIRS]
    return ""


def kept(document: Document) -> Document:
    """The part of a document that a watch keeps: all but `managedFields`; if too large, its identity and status."""
    metadata = mapping(document.get("metadata"))
    problem = too_large(document)
    if not problem:
        return {**document, "metadata": {k: v for k, v in metadata.items() if k != "managedFields"}}
    small = {name: value for name, value in metadata.items() if name in IDENTITY and not too_large({name: value})}
    ours = {name: text for name, text in mapping(metadata.get("annotations")).items() if str(name).startswith(OURS)}
    left: Document = {name: document[name] for name in ("apiVersion", "kind", "status") if name in document}
    left["metadata"] = small if too_large(ours) else {**small, "annotations": ours}
    adopts = {"adopts": mapping(document.get("spec")).get("adopts")}
    left["spec"] = adopts if adopts["adopts"] is not None and not too_large(adopts) else {}
    return {**left, UNREAD: problem}
