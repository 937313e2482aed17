"""What Kubernetes says of a node, as far as a job wants to know it."""

from __future__ import annotations

from master.core.cluster.containers import brief
from master.core.cluster.elasticjob import mapping
from master.core.cluster.names import Document
from master.core.events import NodeSeen


def name_of(node: Document) -> str:
    return str(node["metadata"]["name"])


def seen(node: Document) -> NodeSeen:
    """One that has said nothing yet is not Ready, as to the scheduler."""
    conditions = mapping(node.get("status")).get("conditions") or ()
    ready: Document = next((c for c in conditions if c.get("type") == "Ready"), {})
    if ready.get("status") == "True":
        return NodeSeen(name_of(node), True)
    why = brief(ready.get("message")) or str(ready.get("reason") or "it has not reported yet")
    return NodeSeen(name_of(node), False, why)


def gone(name: str) -> NodeSeen:
    return NodeSeen(name, False, "its Node object was deleted", is_gone=True)


def trimmed(node: Document) -> Document:
    """What `seen` reads, and the watch: the images alone that a node has are tens of kilobytes."""
    metadata = {field: node["metadata"].get(field) for field in ("name", "resourceVersion")}
    conditions = mapping(node.get("status")).get("conditions") or ()
    return {"metadata": metadata, "status": {"conditions": [c for c in conditions if c.get("type") == "Ready"]}}
