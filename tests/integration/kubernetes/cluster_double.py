"""The few calls that certificates need, answered from a dictionary; every call gives way to the others first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import ApiError


class Documents:
    """By path. A patch that names an old version is refused with 409, and so is a create of a name that is there."""

    def __init__(self, documents: Mapping[str, Document] | None = None) -> None:
        self.documents = {path: deepcopy(document) for path, document in (documents or {}).items()}
        self.calls: list[str] = []
        self.refusals: list[ApiError] = []
        """Each call takes one away, as long as there are."""
        self._version = 100

    def writing_while(self, _may_write: Callable[[], bool]) -> Documents:
        return self

    def in_turn(self, _turn: object) -> Documents:
        return self

    async def get(self, path: str) -> Document:
        await self._begin("get", path)
        if path not in self.documents:
            raise ApiError(404, "NotFound", path)
        return deepcopy(self.documents[path])

    async def create(self, path: str, document: Mapping[str, Any], *_warnings: list[str], **_query: str) -> Document:
        await self._begin("create", path)
        named = f"{path}/{document['metadata']['name']}"
        if named in self.documents:
            raise ApiError(409, "AlreadyExists", named)
        return self._stored(named, deepcopy(dict(document)))

    async def patch(self, path: str, patch: Any, content_type: str = "application/merge-patch+json") -> Document:
        await self._begin("patch", path)
        document = deepcopy(self.documents[path])
        if content_type == "application/json-patch+json":
            patched(document, patch)
        else:
            version = patch["metadata"].get("resourceVersion")
            if version not in (None, document["metadata"]["resourceVersion"]):
                raise ApiError(409, "Conflict", path)
            document["data"] = (document.get("data") or {}) | patch["data"]
        return self._stored(path, document)

    async def replace(self, path: str, document: Mapping[str, Any]) -> Document:
        await self._begin("replace", path)
        if document["metadata"]["resourceVersion"] != self.documents[path]["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", path)
        return self._stored(path, deepcopy(dict(document)))

    async def delete(self, path: str, options: Mapping[str, Any] | None = None) -> Document:
        await self._begin("delete", path)
        return self.documents.pop(path, {})

    async def _begin(self, verb: str, path: str) -> None:
        self.calls.append(f"{verb} {path.rpartition('/')[2]}")
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)

    def _stored(self, path: str, document: Document) -> Document:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self.documents[path] = document
        return deepcopy(document)


def patched(document: Document, patch: list[Document]) -> None:
    """RFC 6902 in place: test, add, replace and remove, in objects and at numbers of lists."""
    for step in patch:
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:])
        at: Any = document
        for part in way:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if step["op"] == "test":
            assert at[last] == step["value"]
        elif step["op"] == "remove":
            del at[last]
        else:
            assert step["op"] == "add" or last in at
            at[last] = step["value"]
