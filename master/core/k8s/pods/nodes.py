"""The facts about a node that a job needs: readiness, conditions and taints."""

from __future__ import annotations

from outrider.master.core.events import NodeSeen
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.text import brief

USUAL = {(kind, "False") for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")}
"""Conditions that every healthy kubelet writes."""


def name_of(node: Document) -> str:
    return str(node["metadata"]["name"])


def seen(node: Document) -> NodeSeen:
    """The core's event for a node. A node without a condition Ready is not ready, as for the scheduler."""
    conditions = _conditions(node)
    ready: Document = next((c for c in conditions if c.get("type") == "Ready"), {})
    stands = sorted((str(c.get("type")), str(c.get("status"))) for c in conditions if c is not ready)
    special = tuple(each for each in stands if each not in USUAL)
    taints = tuple(sorted(str(taint.get("key")) for taint in map(mapping, _taints(node))))
    if ready.get("status") == "True":
        return NodeSeen(name_of(node), True, conditions=special, taints=taints)
    why = brief(ready.get("message")) or str(ready.get("reason") or "it has not reported yet")
    return NodeSeen(name_of(node), False, why, conditions=special, taints=taints)


def _conditions(node: Document) -> list[Document]:
    return [mapping(each) for each in entries(mapping(node.get("status")).get("conditions"))]


def _taints(node: Document) -> list[Document]:
    return entries(mapping(node.get("spec")).get("taints"))


def gone(name: str) -> NodeSeen:
    return NodeSeen(name, False, "its Node object was deleted", is_gone=True)


def trimmed(node: Document) -> Document:
    """The fields of a node that `seen` and the watch read; the list of its images alone has tens of kilobytes."""
    metadata = {field: node["metadata"].get(field) for field in ("name", "resourceVersion")}
    words = ("type", "status", "reason", "message")
    conditions = [{word: each[word] for word in words if word in each} for each in _conditions(node)]
    return {"metadata": metadata, "spec": {"taints": _taints(node)}, "status": {"conditions": conditions}}
