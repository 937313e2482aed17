"""Where the masters look. It is every namespace but those of the control plane, or those that are listed and no other.

A listed namespace has watches of its own, so that rights in it are enough (a RoleBinding each). What is told is one
whole all the same: nothing before each of them was listed, then every change. One that is not there, or is deleted, has
nothing in it, and keeps no other waiting.
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
"""Seconds between two looks for a namespace that has not been listed yet."""

Listed = Callable[[list[Document]], None]
Changed = Callable[[str, Document], None]

log = logging.getLogger("scope")


def is_in_scope(namespace: object, listed: Sequence[str] = ()) -> bool:
    return namespace not in CONTROL_PLANE and (not listed or namespace in listed)


def unwatched(namespace: object, listed: Sequence[str] = ()) -> list[str]:
    """What is said to who makes something of ours where no master looks."""
    if is_in_scope(namespace, listed):
        return []
    watched = f"{', '.join(listed)} (OUTRIDER_NAMESPACES)" if listed else f"all but {', '.join(sorted(CONTROL_PLANE))}"
    return [f"no master watches the namespace {namespace}, so nothing is done here; watched: {watched}"]


def is_ours(document: Document) -> bool:
    return is_in_scope(mapping(mapping(document).get("metadata")).get("namespace"))


class ScopedWatch:
    """`prefix` and `plural`, as `/api/v1` and `pods`; else as a Watch."""

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
        """Of each namespace that has been listed, what it has, by name."""

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self._of(namespace).run())
                group.create_task(self._is_not_there(namespace))
            if not self._namespaces:
                path = f"{self._prefix}/{self._plural}"
                watch = Watch(self._api, path, self._list_ours, self._change_ours, self._kept, **self._query)
                group.create_task(watch.run())
        raise AssertionError("a watch has no end")

    def _list_ours(self, documents: list[Document]) -> None:
        self._listed([document for document in documents if is_ours(document)])

    def _change_ours(self, kind: str, document: Document) -> None:
        if is_ours(document):
            self._changed(kind, document)

    # -- in one namespace -------------------------------------------------------------------------------------------
    def _of(self, namespace: str) -> Watch:
        def listed(documents: list[Document]) -> None:
            self._there[namespace] = {_name(document): document for document in documents}
            self._tell()

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
        """Its watch is refused for ever, and says so; the others are not to wait for it."""
        while namespace not in self._there:
            await asyncio.sleep(self._look_every)
            try:
                found = await self._api.get("/api/v1/namespaces", fieldSelector=f"metadata.name={namespace}")
            except ApiError as error:
                log.warning("whether there is a namespace %s is not known: %s", namespace, error)
                continue
            if namespace not in self._there and not found.get("items"):
                log.warning("there is no namespace %s: it is listed in OUTRIDER_NAMESPACES", namespace)
                self._there[namespace] = {}
                self._tell()

    def _is_whole(self) -> bool:
        return len(self._there) == len(self._namespaces)

    def _tell(self) -> None:
        if self._is_whole():
            self._listed([document for there in self._there.values() for document in there.values()])


def _name(document: Document) -> str:
    return str(mapping(mapping(document).get("metadata")).get("name"))
