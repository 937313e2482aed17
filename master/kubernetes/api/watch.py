"""What there is of one kind, and every change of it. A watch lists, watches from there, and lists again if it lost its
place.

A watch ends often and for good reasons; it goes on from the last version heard. 410 (the version is too old) and any
refusal mean a list, after which everything is told anew. The API server being away is waited for, for ever. Nothing
that is shown ends it: who is told of a document fences what it does for that one, and what fails here is said.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import SILENT, Api, ApiError
from outrider.master.kubernetes.api.fence import fenced, name_of

WATCH_SECONDS = 300
AGAIN = (0.5, 10.0)
"""The first and the longest pause after a failure, in seconds."""
FIRST_PAGE, LARGEST_PAGE = 10, 500
"""Documents of a page: each page may have twice as many as the one before, while pages are small."""
SMALL_PAGE = 1 << 20
"""Bytes. A page is read in one go, in which the process does nothing else, and a document may have 1.5 MiB."""

log = logging.getLogger("watch")


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Document]
    size: int
    """Bytes."""
    version: str


async def pages(api: Api, path: str, **query: str) -> AsyncIterator[Page]:
    """All that there is at this path, a few documents at a time where they are large. ApiError."""
    limit = FIRST_PAGE
    while True:
        page, size = await api.page(path, limit=str(limit), **query)
        limit = min(2 * limit, LARGEST_PAGE) if size <= SMALL_PAGE else max(1, limit * SMALL_PAGE // size)
        metadata, items = mapping(page.get("metadata")), page.get("items")
        if not isinstance(items, list):
            raise ApiError(0, "", f"{path}: the answer has no list of items")
        yield Page(items, size, str(metadata.get("resourceVersion") or ""))
        token = metadata.get("continue")
        if not token:
            return
        query["continue"] = token


class Watch:
    """`listed` gets everything there is; `changed` gets ADDED, MODIFIED or DELETED and the document."""

    def __init__(
        self,
        api: Api,
        path: str,
        listed: Callable[[list[Document]], None],
        changed: Callable[[str, Document], None],
        kept: Callable[[Document], Document | None] | None = None,
        **query: str,
    ) -> None:
        """`kept`: what is wanted of each document; the rest is dropped page by page. None: nothing of it,
        as if it were not there."""
        self._api, self._path, self._query = api, path, query
        self._listed, self._changed, self._kept = listed, changed, kept

    async def run(self) -> NoReturn:
        pause = AGAIN[0]
        while True:
            try:
                version = await self._list()
                pause = AGAIN[0]
                while True:
                    version = await self._follow(version)
            except ApiError as error:
                if error.status == 410:
                    continue
                level = logging.INFO if error.reason == SILENT else logging.WARNING
                log.log(level, "%s; it is listed again in %.1f s", error, pause)
            except Exception:  # a bug of ours must not leave all jobs unwatched
                log.exception("%s could not be followed; it is listed again in %.1f s", self._path, pause)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, AGAIN[1])

    async def _list(self) -> str:
        """Page by page, so that a large cluster's answer is no single one."""
        found: list[Document] = []
        version = ""
        async for page in pages(self._api, self._path, **self._query):
            found += page.items if self._kept is None else self._trimmed(page.items)
            version = page.version
        self._listed(found)
        return version

    def _trimmed(self, items: list[Document]) -> Iterator[Document]:
        assert self._kept is not None
        for document in items:
            with fenced(name_of(self._path, document)):
                if (each := self._kept(document)) is not None:
                    yield each

    async def _follow(self, version: str) -> str:
        async with contextlib.aclosing(self._api.watch(self._path, version, WATCH_SECONDS, **self._query)) as changes:
            async for change in changes:
                kind, document = mapping(change).get("type"), mapping(mapping(change).get("object"))
                if kind == "ERROR":
                    code = document.get("code")
                    raise ApiError(code if isinstance(code, int) else 500, "Watch", str(document.get("message")))
                version = str(mapping(document.get("metadata")).get("resourceVersion") or version)
                if kind in ("ADDED", "MODIFIED", "DELETED"):
                    for each in [document] if self._kept is None else self._trimmed([document]):
                        self._changed(kind, each)
        return version
