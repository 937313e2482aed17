"""What a cluster says of a test that has failed, printed with it."""

from __future__ import annotations

import subprocess

from tests.cluster.cluster import SYSTEM
from tests.waiting import DEADLINE

LINES = 60
EVENTS = (
    "custom-columns=AT:.metadata.creationTimestamp,WHO:.source.component,OF:.involvedObject.name,REASON:.reason,"
    "MESSAGE:.message"
)


def told_of(namespace: str) -> list[tuple[str, str]]:
    """(what, text), whatever the API server answers."""
    sidecars = ("-n", namespace, "logs", "--selector=outrider.dev/job", "--container=outrider-sidecar", "--prefix")
    return [
        ("Jobs and pods", _said("-n", namespace, "get", "elasticjobs,pods", "-o", "wide")),
        ("Events", _said("-n", namespace, "get", "events", "--sort-by=.metadata.creationTimestamp", "-o", EVENTS)),
        *_masters(),
        ("Sidecars", _said(*sidecars, "--timestamps", f"--tail={LINES}")),
    ]


def told_of_the_installation() -> list[tuple[str, str]]:
    """(what, text) of a cluster on which Outrider does not become ready."""
    return [
        ("Nodes", _said("get", "nodes", "-o", "wide")),
        ("Pods of all namespaces", _said("get", "pods", "--all-namespaces", "-o", "wide")),
        ("Outrider's pods", _said("-n", SYSTEM, "describe", "pods")),
        ("Events", _said("-n", SYSTEM, "get", "events", "--sort-by=.metadata.creationTimestamp", "-o", EVENTS)),
        *_masters(),
    ]


def _masters() -> list[tuple[str, str]]:
    logs = ("-n", SYSTEM, "logs", "--selector=app.kubernetes.io/component=master", "--prefix", "--timestamps")
    return [
        ("Masters", _said(*logs, f"--tail={LINES}")),
        ("Masters before they were restarted", _said(*logs, f"--tail={LINES}", "--previous")),
    ]


def _said(*arguments: str) -> str:
    try:
        done = subprocess.run(["kubectl", *arguments], capture_output=True, text=True, timeout=DEADLINE)
    except subprocess.TimeoutExpired as error:
        return str(error)
    return (done.stdout + done.stderr)[-12_000:]
