"""Watches only the namespaces in scope: those that are listed, or all but the control plane's.

Each listed namespace is watched by itself, so that rights in it (a RoleBinding each) are enough. The receiver still
sees one list, once all namespaces have been listed, and then every change. A namespace that does not exist, or is
deleted, counts as empty and does not delay the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

from outrider.master.core.k8s.values import bounds
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import CONTROL_PLANE, Document
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.api.watch import Watch

LOOK_EVERY = 10.0
"""Seconds between two checks whether a namespace that has not been listed yet exists."""

Listed = Callable[[list[Document]], None]
Changed = Callable[[str, Document], None]

log = logging.getLogger("scope")


def is_in_scope(namespace: object, listed: Sequence[str] = ()) -> bool:
    return namespace not in CONTROL_PLANE and (not listed or namespace in listed)


def unwatched(namespace: object, listed: Sequence[str] = ()) -> list[str]:
    """The warning for a user who creates a pod or an ElasticJob in a namespace that is not watched; else empty."""
    if is_in_scope(namespace, listed):
        return []
    watched = f"{', '.join(listed)} (OUTRIDER_NAMESPACES)" if listed else f"all but {', '.join(sorted(CONTROL_PLANE))}"
    return [f"Outrider does not watch the namespace {namespace} and does nothing here; watched namespaces: {watched}"]


def is_ours(document: Document) -> bool:
    return is_in_scope(mapping(mapping(document).get("metadata")).get("namespace"))


class ScopedWatch:
    """A `Watch` of one resource type (`prefix` and `plural`, as `/api/v1` and `pods`) in the namespaces in scope."""

    def __init__(
        self,
        api: Api,
        namespaces: Sequence[str],
        prefix: str,
        plural: str,
        listed: Listed,
        changed: Changed,
        look_every: float = LOOK_EVERY,
        kept: Callable[[Document], Document | None] = bounds.kept,
        **query: str,
    ) -> None:
        self._api, self._namespaces, self._listed, self._changed = api, tuple(namespaces), listed, changed
        self._prefix, self._plural, self._query, self._look_every = prefix, plural, query, look_every
        self._kept = kept
        self._there: dict[str, dict[str, Document]] = {}
        """The documents of each namespace that has been listed, by name."""

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self._of(namespace).run())
                group.create_task(self._is_not_there(namespace))
            if not self._namespaces:
                path = f"{self._prefix}/{self._plural}"
                watch = Watch(self._api, path, self._list_ours, self._change_ours, self._kept, **self._query)
                group.create_task(watch.run())
        raise AssertionError("a watch never ends")

    def _list_ours(self, documents: list[Document]) -> None:
        self._listed([document for document in documents if is_ours(document)])

    def _change_ours(self, kind: str, document: Document) -> None:
        if is_ours(document):
            self._changed(kind, document)

    # -- in one namespace -------------------------------------------------------------------------------------------
    def _of(self, namespace: str) -> Watch:
        def listed(documents: list[Document]) -> None:
            self._there[namespace] = {_name(document): document for document in documents}
            self._report()

        def changed(kind: str, document: Document) -> None:
            there = self._there[namespace]
            if kind == "DELETED":
                there.pop(_name(document), None)
            else:
                there[_name(document)] = document
            if self._is_whole():
                self._changed(kind, document)

        path = f"{self._prefix}/namespaces/{namespace}/{self._plural}"
        return Watch(self._api, path, listed, changed, self._kept, **self._query)

    async def _is_not_there(self, namespace: str) -> None:
        """Counts the namespace as empty if it does not exist: its watch is refused for ever (and logs that)."""
        while namespace not in self._there:
            await asyncio.sleep(self._look_every)
            try:
                found = await self._api.get("/api/v1/namespaces", fieldSelector=f"metadata.name={namespace}")
            except ApiError as error:
                log.warning("checking whether the namespace %s exists failed: %s", namespace, error)
                continue
            if namespace not in self._there and not found.get("items"):
                log.warning("OUTRIDER_NAMESPACES lists the namespace %s, which does not exist", namespace)
                self._there[namespace] = {}
                self._report()

    def _is_whole(self) -> bool:
        return len(self._there) == len(self._namespaces)

    def _report(self) -> None:
        if self._is_whole():
            self._listed([document for there in self._there.values() for document in there.values()])


def _name(document: Document) -> str:
    return str(mapping(mapping(document).get("metadata")).get("name"))
