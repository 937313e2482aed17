"""Writes a job's history into its ElasticJobHistory, for `outrider report`.

Nothing depends on it: a write that fails is logged once, and the next one has all that it had.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from outrider.master.core.k8s.elasticjob import history
from outrider.master.core.k8s.pods import disruption
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api, ApiError

log = logging.getLogger("record")


class JobHistory:
    """`job`: returns the ElasticJob's document."""

    def __init__(self, api: Api, job: Callable[[], Document]) -> None:
        self._api, self._job = api, job
        self._reported = ""

    async def save(self, part: Mapping[str, Any]) -> None:
        job, key, text = self._job(), history.key(part), history.packed(part)
        metadata = job["metadata"]
        path = history.path_of(metadata["namespace"], metadata["name"])
        try:
            found = await self._write(path, job, {key: text})
            if not disruption.is_of(found, job):
                return  # of an earlier job of this name, and about to be deleted
            dropped = history.to_drop(mapping(found.get("parts")), key)
            if dropped:
                await self._api.patch(path, {"parts": dict.fromkeys(dropped)})
            self._reported = ""
        except ApiError as error:
            self._report(f"{path}: the history could not be saved: {error}")

    async def _write(self, path: str, job: Document, parts: dict[str, str]) -> Document:
        try:
            return await self._api.patch(path, {"parts": parts})
        except ApiError as error:
            if not error.is_absent:
                raise
        return await self._api.create(path.rpartition("/")[0], history.document(job, parts))

    def _report(self, sentence: str) -> None:
        if sentence != self._reported:
            self._reported = sentence
            log.warning("%s", sentence)
