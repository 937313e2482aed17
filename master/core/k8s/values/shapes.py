"""The types that the fields of a document must have before anything else reads it.

The API server stores more than the types allow: an ElasticJob's template may be any object, and a schema may be older
than the master or missing. A wrong type is reported with the field's path, and the reader skips this document only
(docs/adr/0027). The rules about meaning (`k8s.elasticjob.cross_field`, `k8s.pods.rejections`) rely on these types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, NamedTuple, TypeAlias

from outrider.master.core.k8s.values import bounds
from outrider.master.core.k8s.values.field_errors import invalid
from outrider.master.core.k8s.values.names import Document

MOST_NESTED = 100
"""Maximum nesting depth of objects and lists: a pod has about 15, and some readers fail at 300."""
PATH_SHOWN = 8
"""Number of names that are shown of the path of a value that is nested too deeply."""
ANY = "*"
"""Key of a shape for all fields without a shape of their own."""
Shape: TypeAlias = "type | UnionType | Mapping[str, Any] | list[Any]"
"""A type, an object with the shapes of its fields, or a list with the shape of its entries. Null counts as missing."""


class WrongDocument(Exception):
    """One document has a field of a wrong type; other documents are not affected."""

    def __init__(self, path: str, found: object, allowed: str) -> None:
        super().__init__(invalid(path, found, f"must be {allowed}"))
        self.path, self.found, self.allowed = path, found, allowed


class Identity(NamedTuple):
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


TEXTS: Shape = {ANY: str}
METADATA: Shape = {
    "labels": TEXTS,
    "annotations": TEXTS,
    "finalizers": [str],
    "ownerReferences": [{"apiVersion": str, "kind": str, "name": str, "uid": str}],
    "resourceVersion": str,
    "creationTimestamp": str,
    "deletionTimestamp": str,
}
CONTAINER: Shape = {
    "name": str,
    "env": [{"name": str}],
    "resources": {ANY: {}},
    "securityContext": {},
}
POD_SPEC: Mapping[str, Any] = {
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "volumes": [{"name": str}],
    "nodeSelector": TEXTS,
    "nodeName": str,
    "schedulerName": str,
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [{}]}]},
        }
    },
}
OBJECTED = ("containers", "initContainers", "volumes")
"""Fields of a pod template that `k8s.pods.rejections` checks with messages of its own."""
TEMPLATE: Shape = {
    "metadata": METADATA,
    "spec": {field: shape for field, shape in POD_SPEC.items() if field not in OBJECTED},
}
JOB: Shape = {
    "metadata": METADATA,
    "spec": {"replicaSpecs": {ANY: {"template": TEMPLATE}}, "pytorchReplicaSpecs": {ANY: {"template": TEMPLATE}}},
}
STATE: Shape = {"exitCode": int, "reason": str, "message": str}
STATES: Shape = {ANY: STATE}
CONTAINER_STATUS: Shape = {"name": str, "restartCount": int, "state": STATES, "lastState": STATES}
CONDITION: Shape = {"type": str, "status": str, "reason": str, "message": str}
POD: Shape = {
    "metadata": METADATA,
    "spec": POD_SPEC,
    "status": {
        "phase": str,
        "reason": str,
        "message": str,
        "conditions": [CONDITION],
        "containerStatuses": [CONTAINER_STATUS],
        "initContainerStatuses": [CONTAINER_STATUS],
    },
}
NODE: Shape = {
    "metadata": METADATA,
    "spec": {"taints": [{"key": str}]},
    "status": {"conditions": [CONDITION]},
}


def identity_of(document: object) -> Identity:
    """Namespace, name and UID of a document. Raises WrongDocument if it has no name or one of them has a wrong type."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict):
        raise WrongDocument("metadata", metadata, "an object with name and uid")
    found = {field: metadata.get(field) for field in ("namespace", "name", "uid")}
    for field, value in found.items():
        if not isinstance(value, str | None) or (field == "name" and not value):
            raise WrongDocument(f"metadata.{field}", value, "a string")
    return Identity(found["namespace"] or "", str(found["name"]), found["uid"] or "")


def metadata_of(document: Document) -> Document:
    """The metadata without the fields of a wrong type."""
    metadata = document["metadata"]
    wrong = {each.path.partition(".")[0].partition("[")[0] for each in differences(metadata, METADATA)}
    return {field: value for field, value in metadata.items() if field not in wrong}


def check(document: object, shape: Shape) -> Identity:
    """The identity of a document. Raises WrongDocument for the first field of a wrong type."""
    identity = identity_of(document)
    for wrong in differences(document, shape):
        raise wrong
    return identity


def malformed(job: Document) -> list[str]:
    """Field errors for all fields of an ElasticJob that have a wrong type, or for its size."""
    if problem := bounds.too_large(job):
        return [problem]
    return [str(wrong) for wrong in differences(job, JOB)]


def differences(document: object, shape: Shape) -> Iterator[WrongDocument]:
    """All fields of a wrong type; only the nesting if the document is nested too deeply."""
    deep = list(_too_deep(document))
    yield from deep or _differences(document, shape, "")


def _differences(value: object, shape: Shape, path: str) -> Iterator[WrongDocument]:
    if value is None:
        return
    if isinstance(shape, Mapping):
        if not isinstance(value, dict):
            yield WrongDocument(path, value, "an object")
            return
        for name, inner in value.items():
            if (below := shape.get(name, shape.get(ANY))) is not None:
                yield from _differences(inner, below, _under(path, str(name)))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield WrongDocument(path, value, "a list")
            return
        for number, inner in enumerate(value):
            at = f"{path}[{number}]"
            yield from _differences(inner, shape[0], at) if inner is not None else [_not_null(at, shape[0])]
    elif not isinstance(value, shape) or isinstance(value, bool):
        yield WrongDocument(path, value, "a string" if shape is str else "an integer")


def _under(path: str, name: str) -> str:
    if "/" in name or "." in name:
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def _not_null(path: str, shape: Shape) -> WrongDocument:
    return WrongDocument(path, None, "an object" if isinstance(shape, Mapping) else "a string")


def _too_deep(document: object) -> Iterator[WrongDocument]:
    """The first value that is nested too deeply, found without recursion."""
    left: list[tuple[object, int, str]] = [(document, 0, "")]
    while left:
        value, depth, path = left.pop()
        if depth > MOST_NESTED:
            yield WrongDocument(path, type(value).__name__, f"nested at most {MOST_NESTED} levels deep")
            return
        for name, inner in _entries(value):
            if isinstance(inner, dict | list):
                left.append((inner, depth + 1, f"{path}{name}".removeprefix(".") if depth < PATH_SHOWN else path))


def _entries(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from ((f".{name}", inner) for name, inner in value.items())
    elif isinstance(value, list):
        yield from ((f"[{number}]", inner) for number, inner in enumerate(value))
