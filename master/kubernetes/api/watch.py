"""List-then-watch for one resource type; lists again if the resourceVersion has expired.

The server ends watches often and for good reasons; the next one continues from the last version received. After 410
(the version is too old) and after any refusal, everything is listed and passed on again. While the API server is away,
the watch retries for ever. No document ends a watch: the receiver fences its handling of each document, and failures
here are logged.
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
"""First and longest pause after a failure, in seconds."""
FIRST_PAGE, LARGEST_PAGE = 10, 500
"""Number of documents on the first page, and at most; the number doubles from page to page while pages are small."""
SMALL_PAGE = 1 << 20
"""Largest size of a small page in bytes. Parsing a page blocks the process, and one document may have 1.5 MiB."""

log = logging.getLogger("watch")


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Document]
    size: int
    """Size of the page in bytes."""
    version: str


async def pages(api: Api, path: str, **query: str) -> AsyncIterator[Page]:
    """All documents at this path, page by page; pages of large documents have fewer of them. Raises ApiError."""
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
    """Calls `listed` with all documents, then `changed` with ADDED, MODIFIED or DELETED and each changed document."""

    def __init__(
        self,
        api: Api,
        path: str,
        listed: Callable[[list[Document]], None],
        changed: Callable[[str, Document], None],
        kept: Callable[[Document], Document | None] | None = None,
        **query: str,
    ) -> None:
        """`kept`: reduces each document to the fields that are needed, page by page; if it returns None, the document
        is dropped as if it did not exist."""
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
                log.log(level, "%s; listing again in %.1f s", error, pause)
            except Exception:  # a bug of ours must not leave all jobs unwatched
                log.exception("watching %s failed (a bug in Outrider); listing again in %.1f s", self._path, pause)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, AGAIN[1])

    async def _list(self) -> str:
        """Lists page by page, so that a large cluster's answer does not come in one piece; returns the version."""
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
