"""Facts about nodes, and errors at the creation of pods."""

from __future__ import annotations

import pytest

from outrider.master.core.events import NodeSeen
from outrider.master.core.k8s.pods import create_errors, nodes
from outrider.master.core.k8s.values.names import Document


def node(**ready: str) -> Document:
    conditions = [{"type": "MemoryPressure", "status": "False"}, *([{"type": "Ready", **ready}] if ready else [])]
    status = {"conditions": conditions, "images": [{"names": ["a"] * 50}]}
    return {"metadata": {"name": "node-1", "resourceVersion": "7", "labels": {"x": "y"}}, "status": status}


@pytest.mark.parametrize(
    ("document", "seen"),
    [
        (node(status="True", reason="KubeletReady", message="kubelet is posting ready status"),
         NodeSeen("node-1", True)),
        (node(status="Unknown", reason="NodeStatusUnknown", message="Kubelet stopped posting node status."),
         NodeSeen("node-1", False, "Kubelet stopped posting node status")),
        (node(status="False", reason="KubeletNotReady"), NodeSeen("node-1", False, "KubeletNotReady")),
        (node(), NodeSeen("node-1", False, "it has not reported yet")),
    ],
)  # fmt: skip
def test_a_node_is_ready_or_says_why_not(document: Document, seen: NodeSeen) -> None:
    assert nodes.seen(document) == seen
    assert nodes.seen(nodes.trimmed(document)) == seen


def test_only_unusual_conditions_of_a_node_are_reported() -> None:
    document = node(status="True")
    document["status"]["conditions"] += [
        {"type": "GpuUnhealthy", "status": "True", "lastHeartbeatTime": "2026-11-22T03:00:00Z"},
        {"type": "FrequentKubeletRestart", "status": "False"},
        {"type": "DiskPressure", "status": "True"},
    ]
    document["spec"] = {"taints": [{"key": "maintenance", "value": "soon", "effect": "NoSchedule"}]}
    expected = NodeSeen(
        "node-1",
        True,
        conditions=(("DiskPressure", "True"), ("FrequentKubeletRestart", "False"), ("GpuUnhealthy", "True")),
        taints=("maintenance",),
    )
    assert nodes.seen(document) == expected
    assert nodes.seen(nodes.trimmed(document)) == expected
    document["status"]["conditions"][-1]["lastHeartbeatTime"] = "2026-11-22T03:05:00Z"
    assert nodes.seen(document) == expected, "a heartbeat is nothing new"


def test_of_a_node_little_is_kept() -> None:
    kept = nodes.trimmed(node(status="True"))
    assert kept["metadata"] == {"name": "node-1", "resourceVersion": "7"}
    assert "images" not in kept["status"]


PODS = "POST /api/v1/namespaces/t/pods: "
QUOTA = 'pods "train-worker-1" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'
CLOSED = 'pods "x-worker-1" is forbidden: unable to create new content in namespace t because it is being terminated'
DENIED = 'admission webhook "policy.example" denied the request: no GPUs on Sundays'


@pytest.mark.parametrize(
    ("status", "message", "is_refusal", "is_final"),
    [
        (403, QUOTA, True, False),
        (403, CLOSED, True, True),
        (400, DENIED, True, False),
        (422, 'Pod "train-worker-1" is invalid: spec.containers: Required value', True, False),
        (404, 'namespaces "t" not found', True, True),
        (409, 'pods "train-worker-1" already exists', False, False),
        (429, "too many requests", False, False),
        (500, 'Internal error occurred: failed calling webhook "policy.example"', False, False),
        (0, "the API server was not reached", False, False),
    ],
)
def test_a_lasting_rejection_differs_from_a_failed_request(
    status: int, message: str, is_refusal: bool, is_final: bool
) -> None:
    assert create_errors.is_refusal(status) is is_refusal
    assert create_errors.is_final(status, PODS + message) is is_final
    assert create_errors.sentence(PODS + message) == message
