"""The documents of a pod's owners: of its controller, of that one's own, and so on, as far as we may read them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from master.core.cluster import owners
from master.core.cluster.names import Document
from master.shell.kubernetes.api import Api

PLURALS = {
    ("batch", "Job"): "jobs",
    ("apps", "StatefulSet"): "statefulsets",
    ("kubeflow.org", "PyTorchJob"): "pytorchjobs",
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
}
"""Owners whose size we can read. Pods of any other count by themselves."""
NAME = re.compile(r"[a-z0-9][-a-z0-9.]*")
"""Nothing else is asked for: a reference is the user's to write, and what it names goes into a path."""


async def owners_of(api: Api, pod: Document, namespace: str) -> AsyncIterator[Document]:
    """From the inside out. Raises ApiError where the server does not help; those before it were given already."""
    found = pod
    for _ in PLURALS:  # no chain of controllers is longer
        reference = owners.controller_of(found["metadata"])
        if reference is None:
            return
        group, _, version = str(reference["apiVersion"]).rpartition("/")
        plural = PLURALS.get((group, reference["kind"]))
        if plural is None or not NAME.fullmatch(str(reference["name"])):
            return
        found = await api.get(f"/apis/{group}/{version}/namespaces/{namespace}/{plural}/{reference['name']}")
        yield found
