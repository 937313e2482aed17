"""Reads a pod's chain of owners: its controller, the controller's controller, and so on."""

from __future__ import annotations

from collections.abc import AsyncIterator

from outrider.master.core.k8s.owners import owner as owners_owner
from outrider.master.core.k8s.values import paths
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api

PLURALS = {
    ("batch", "Job"): "jobs",
    ("apps", "StatefulSet"): "statefulsets",
    ("kubeflow.org", "PyTorchJob"): "pytorchjobs",
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
}
"""Kinds of owners whose size we can read. A pod of any other kind of owner counts as a job by itself."""


def path_of(reference: Document, namespace: str) -> str | None:
    """The API path of a user-written reference (apiVersion, kind, name); None if its kind or name is not valid here."""
    group, _, version = str(reference.get("apiVersion")).rpartition("/")
    plural, name = PLURALS.get((group, str(reference.get("kind")))), str(reference.get("name"))
    if plural is None or not paths.VERSION.fullmatch(version) or not paths.DNS.fullmatch(name):
        return None
    return paths.named(paths.folder(f"{group}/{version}", plural, namespace), name)


async def owners_of(api: Api, pod: Document, namespace: str) -> AsyncIterator[Document]:
    """The owners, innermost first. Raises ApiError at the first that cannot be read, after those before it."""
    found = pod
    for _ in PLURALS:  # no chain of controllers is longer
        reference = owners_owner.controller_of(found["metadata"])
        if reference is None:
            return
        path = path_of(reference, namespace)
        if path is None:
            return
        found = await api.get(path)
        yield found
