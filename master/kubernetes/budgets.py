"""The PodDisruptionBudgets that there are in a namespace, read once for all of its jobs and page by page.

A tenant writes them, as many and as large as the API server stores. So of each only what says which pods it holds is
kept, and a namespace that has too many of them is not looked at any further.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api
from outrider.master.kubernetes.api.watch import pages

MOST_BYTES = 8 << 20
"""Of all budgets of a namespace; 5,000 that are as small as ours fit."""
FRESH = 30.0
"""Seconds for which what was read is taken as it is."""
REMEMBERED = 4
"""Namespaces."""


@dataclass(frozen=True, slots=True)
class Found:
    at: float
    budgets: tuple[Document, ...]
    is_all: bool


class Budgets:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._found: dict[str, Found] = {}
        self._one_at_a_time = asyncio.Lock()

    async def of(self, folder: str, api_version: str) -> tuple[Document, ...] | None:
        """Those at this path of the API, each with its name, owners and selector; None where they are too many to be
        read. ApiError."""
        async with self._one_at_a_time:
            found = self._found.get(folder)
            if found is None or time.monotonic() - found.at > FRESH:
                self._found.pop(folder, None)
                found = self._found[folder] = await self._read(folder, api_version)
                while len(self._found) > REMEMBERED:
                    del self._found[next(iter(self._found))]
        return found.budgets if found.is_all else None

    async def _read(self, folder: str, api_version: str) -> Found:
        budgets: list[Document] = []
        size = 0
        async for page in pages(self._api, folder):
            size += page.size
            if size > MOST_BYTES:
                return Found(time.monotonic(), (), False)
            budgets += [_kept(each, api_version) for each in page.items]
        return Found(time.monotonic(), tuple(budgets), True)


def _kept(budget: Document, api_version: str) -> Document:
    metadata = mapping(mapping(budget).get("metadata"))
    owners = [{"uid": each.get("uid")} for each in entries(metadata.get("ownerReferences"))]
    return {
        "apiVersion": api_version,
        "metadata": {"name": str(metadata.get("name")), "ownerReferences": owners},
        "spec": {"selector": mapping(mapping(budget).get("spec")).get("selector")},
    }
