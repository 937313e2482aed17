"""The documents of a pod's owners. They are its controller, that one's own, and so on, as far as we may read them."""

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
"""Owners whose size we can read. Pods of any other count by themselves."""


def path_of(reference: Document, namespace: str) -> str | None:
    """Of what a user has written, with apiVersion, kind and name; None where it is none of these kinds, or no name."""
    group, _, version = str(reference.get("apiVersion")).rpartition("/")
    plural, name = PLURALS.get((group, str(reference.get("kind")))), str(reference.get("name"))
    if plural is None or not paths.VERSION.fullmatch(version) or not paths.DNS.fullmatch(name):
        return None
    return paths.named(paths.folder(f"{group}/{version}", plural, namespace), name)


async def owners_of(api: Api, pod: Document, namespace: str) -> AsyncIterator[Document]:
    """From the inside out. Raises ApiError where the server does not help; those before it were given already."""
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
