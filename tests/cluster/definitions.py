"""Kinds of other projects, as far as anyone here reads them: a spec that may be anything."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from tests.cluster.cluster import DEADLINE, kubectl


@contextlib.contextmanager
def defined(group: str, version: str, kind: str) -> Iterator[None]:
    """While this is entered the API server knows the kind. What was made of it goes with it."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything}}}
    document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }
    kubectl("delete", "crd", f"{plural}.{group}", "--ignore-not-found")  # of a run that was broken off
    kubectl("create", "-f", "-", given=json.dumps(document))
    try:
        kubectl("wait", "--for=condition=Established", f"crd/{plural}.{group}", f"--timeout={DEADLINE:g}s")
        yield
    finally:
        kubectl("delete", "crd", f"{plural}.{group}", "--wait=false")
