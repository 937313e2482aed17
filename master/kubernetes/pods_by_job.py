"""Keeps the watched pods by job, also before their ElasticJob is seen."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.master.core.k8s.pods import disappeared
from outrider.master.core.k8s.values import shapes
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.fence import readable
from outrider.wire.ids import JobName


class PodsByJob:
    def __init__(self) -> None:
        self._pods: dict[JobName, dict[str, Document]] = {}
        self.are_listed = False

    def of(self, key: JobName) -> list[Document]:
        return list(self._pods.get(key, {}).values())

    def __iter__(self) -> Iterator[JobName]:
        """Iterates over the jobs that have pods."""
        return iter(self._pods)

    def listed(self, pods: list[Document]) -> None:
        self._pods = {}
        for pod in readable("Pod", pods, shapes.POD):
            key = disappeared.made_for(pod)
            if key is not None and not disappeared.is_taken_out(pod):
                self._pods.setdefault(key, {})[pod["metadata"]["name"]] = pod
        self.are_listed = True

    def take(self, kind: str, pod: Document) -> tuple[JobName, str] | None:
        """The pod's job and the kind of change for that job; None if the change concerns no job.

        For a job whose label was removed from the pod, the change counts as DELETED.
        """
        key, name = disappeared.made_for(pod), pod["metadata"]["name"]
        if key is None:
            return None
        if disappeared.is_taken_out(pod):
            if name not in self._pods.get(key, ()):
                return None
            kind = "DELETED"
        if kind == "DELETED":
            of_job = self._pods.get(key, {})
            of_job.pop(name, None)
            if not of_job:
                self._pods.pop(key, None)
        else:
            self._pods.setdefault(key, {})[name] = pod
        return key, kind
