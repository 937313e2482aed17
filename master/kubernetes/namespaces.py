"""Watches annotations of namespaces that apply to all jobs in them; most namespaces have none."""

from __future__ import annotations

import logging
from collections.abc import Callable

from outrider.master.core.k8s.values import modes, shapes
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.api.fence import fenced, name_of, readable
from outrider.master.kubernetes.api.watch import Watch

PATH = "/api/v1/namespaces"

log = logging.getLogger("fleet")


class Namespaces:
    """`changed` is called with the name of each namespace whose annotations of ours have changed."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._annotations: dict[str, Document] = {}

    def annotations(self, name: str) -> Document | None:
        return self._annotations.get(name)

    async def watch(self, api: Api) -> None:
        """Watches if reading namespaces is allowed; without that right their annotations have no effect."""
        try:
            await api.get(PATH, limit="1")
        except ApiError as error:
            if error.status == 403:
                log.info("reading namespaces is forbidden, so annotations of namespaces have no effect")
                return
        await Watch(api, PATH, self.listed, self.shown, modes.trimmed).run()

    def listed(self, namespaces: list[Document]) -> None:
        there = {namespace["metadata"]["name"] for namespace in readable("Namespace", namespaces, {})}
        for name in [name for name in self._annotations if name not in there]:
            self.shown("DELETED", {"metadata": {"name": name}})
        for namespace in namespaces:
            self.shown("MODIFIED", namespace)

    def shown(self, kind: str, namespace: Document) -> None:
        with fenced(name_of("Namespace", namespace)):
            shapes.check(namespace, {"metadata": shapes.METADATA})
            self._take(kind, namespace)

    def _take(self, kind: str, namespace: Document) -> None:
        name = namespace["metadata"]["name"]
        before = self._annotations.pop(name, {})
        if kind != "DELETED" and modes.says_something(namespace):
            self._annotations[name] = mapping(namespace["metadata"]["annotations"])
        if self._annotations.get(name, {}) != before:
            self._changed(name)
