"""What the tests of injection share: pods, and what became of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.injection.webhook import inject
from outrider.master.core.k8s.owners import owner as owners_owner
from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.values.names import Document

POLICY = Policy("outrider/sidecar:1", "IfNotPresent", "tcp://outrider-master.outrider-system.svc:7070", "k" * 40)
NATIVE = replace(POLICY, native_sidecar=True)
PLACE = Place("gpt", "research", "worker")
LAUNCH = "/outrider/hooks/outrider-launch"
OURS = {"outrider-hooks", "outrider-sidecar"}


def place_of(pod: Document) -> Place:
    place = owners_owner.place_of(pod, "research", {})
    assert place is not None
    return place


def pod_of(*containers: Document, **spec: Any) -> Document:
    main = {"name": "main", "image": "train:1", "command": ["python", "train.py"]}
    return {"metadata": {"name": "gpt-0"}, "spec": {"containers": list(containers) or [main], **spec}}


def annotated(notes: Document) -> Document:
    return {**pod_of(), "metadata": {"name": "gpt-0", "annotations": notes}}


def main(**container: Any) -> Document:
    return {"name": "main", "image": "train:1", **container}


def injected(pod: Document, place: Place = PLACE, policy: Policy = POLICY) -> Document:
    found = inject(pod, place, policy)
    assert found.refused == ""
    assert found.changed
    return found.pod


def trainer(pod: Document) -> Document:
    found: Document = pod["spec"]["containers"][0]
    return found


def values(container: Document) -> dict[str, Any]:
    """A variable's value, or the path that it is read from."""
    return {
        entry["name"]: entry["value"] if "value" in entry else entry["valueFrom"]["fieldRef"]["fieldPath"]
        for entry in container["env"]
    }


def sidecar(pod: Document) -> Document:
    containers = [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
    return next(each for each in containers if each["name"] == "outrider-sidecar")
