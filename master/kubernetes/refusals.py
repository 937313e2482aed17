"""Reports an invalid ElasticJob that no webhook has refused in its conditions."""

from __future__ import annotations

import logging

from outrider.master.core.k8s.elasticjob import status as elasticjob_status
from outrider.master.core.k8s.values import shapes
from outrider.master.core.k8s.values.identity import key_of
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.background import Background
from outrider.master.kubernetes.status_writer import now, path_of
from outrider.wire.ids import JobName

log = logging.getLogger("fleet")


class Refusals:
    def __init__(self, api: Api, background: Background) -> None:
        self._api, self._background = api, background
        self._written: dict[JobName, list[str]] = {}

    def refuse(self, key: JobName, job: Document, wrong: list[str]) -> None:
        """Logs the problems and writes them into the conditions, unless they were written already."""
        if self._written.get(key) == wrong:
            return
        self._written[key] = wrong
        log.warning("ElasticJob %s is invalid and does not run: %s", key, "; ".join(wrong))
        self._background.start(self._write(job, wrong))

    def forget(self, key: JobName) -> None:
        self._written.pop(key, None)

    async def _write(self, job: Document, wrong: list[str]) -> None:
        """Writes the condition, which works for any document; one that changes meanwhile is refused again."""
        identity = shapes.identity_of(job)
        patch = elasticjob_status.refused(job, wrong, now())
        try:
            await self._api.patch(f"{path_of(identity.namespace, identity.name)}/status", patch)
        except ApiError as error:
            self.forget(key_of(job))  # the next list refuses it again
            if not (error.is_absent or error.is_conflict):
                log.warning("writing the problems of ElasticJob %s into its status failed: %s", identity, error)
