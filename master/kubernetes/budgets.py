"""Reads the PodDisruptionBudgets of a namespace, page by page and once for all its jobs.

Tenants may create as many and as large ones as the API server stores. So only the fields are kept that show which pods
a budget covers, and reading stops in a namespace that has too many.
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
"""Most bytes of all budgets of a namespace; 5,000 of the size of ours fit."""
FRESH = 30.0
"""Seconds for which the budgets read are reused."""
REMEMBERED = 4
"""Most namespaces whose budgets are cached."""


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
        """The budgets at this path of the API, each with name, owners and selector; None if they are too many.

        Raises ApiError.
        """
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
