"""Keeps a job's other objects: its PodDisruptionBudget, and Services if members need an address.

They are checked when the job starts and when it or its pods change; a request is made only if the desired object
differs from what was last written. Owner references delete them with the ElasticJob. An object of the same name that is
not the job's is left alone and reported. No training depends on these objects: a refusal is reported once and retried
later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from outrider.master.core.k8s.pods import addresses, disruption
from outrider.master.core.k8s.values import paths
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.budgets import Budgets
from outrider.master.kubernetes.status_writer import JobRecord

LEAST_APART = 1.0
"""Shortest time in seconds between two checks: many pods change at once."""
AT_REST = 10.0
"""Seconds between two checks while members are missing, as the budget depends on how long they are missing."""
AGAIN = 60.0
"""Seconds until a refused object is tried again."""

TOO_MANY = (
    "The PodDisruptionBudgets of the namespace exceed 8 MiB in total, so they were not searched for one that covers "
    "the job's pods. Outrider creates none for this job."
)

log = logging.getLogger("belongings")


class Belongings:
    """`pods`: the job's pods that the watch shows."""

    def __init__(
        self,
        api: Api,
        record: JobRecord,
        pods: Callable[[], Sequence[Document]],
        is_master: Callable[[], bool],
        budgets: Budgets | None = None,
    ) -> None:
        """`budgets`: cache of the namespaces' budgets, shared by all jobs."""
        self._budgets = budgets or Budgets(api)
        self._api, self._record, self._pods, self._is_master = api, record, pods, is_master
        self._news = asyncio.Event()
        self._patience = disruption.Patience()
        self._written: dict[str, Any] = {}
        """The spec last written to the API server, by path."""
        self._version: str | None = None
        self._left: set[str] = set()
        """Paths of objects that we do not manage."""
        self._reported: set[str] = set()
        """Sentences that have been reported."""

    def stir(self) -> None:
        """Triggers a check, as the job or its pods have changed."""
        self._news.set()

    async def keep(self) -> None:
        """Checks and writes the objects until cancelled."""
        while True:
            self._news.clear()
            pause = None if self._patience.is_settled else AT_REST
            if self._is_master() and not await self._look():
                pause = AGAIN
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), pause)
            await asyncio.sleep(LEAST_APART)

    async def _look(self) -> bool:
        """Whether all objects are as they should be."""
        job = self._record.job
        lacking = self._patience.look(disruption.lacking(job, self._pods()), time.monotonic())
        try:
            services = [await self._have("services", service) for service in addresses.services_of(job)]
            return await self._have_budget(job, lacking) and all(services)
        except ApiError as error:
            text = (
                f"The API server refused a Service or PodDisruptionBudget of the job (retry in {AGAIN:g} s): {error}."
            )
            self._report("OwnedObjectRejected", text)
            return False

    # -- the budget -------------------------------------------------------------------------------------------------
    async def _have_budget(self, job: Document, lacking: int) -> bool:
        if self._version is None:
            self._version = disruption.api_version(await self._api.get(f"/apis/{disruption.GROUP}")) or ""
        if not self._version:
            text = "The API server does not support PodDisruptionBudgets: a drain evicts all members of a node at once."
            self._report("PDBUnsupported", text)
            return True
        budget = disruption.budget_of(job, self._version, lacking)
        path = self._path(disruption.PLURAL, budget)
        if path not in self._written and path not in self._left:
            there = await self._budgets.of(path.rpartition("/")[0], self._version)
            if there is None:
                self._left.add(path)
                self._report("ForeignPDBFound", TOO_MANY)
            elif others := disruption.others(there, job, self._pods()):
                text = f"Another PodDisruptionBudget covers the pods ({', '.join(others)}): Outrider creates none."
                self._left.add(path)
                self._report("ForeignPDBFound", text)
        return path in self._left or await self._have(disruption.PLURAL, budget)

    # -- any of them ------------------------------------------------------------------------------------------------
    async def _have(self, plural: str, document: Document) -> bool:
        """Creates or updates the object if needed; whether it is as it should be."""
        path = self._path(plural, document)
        if self._written.get(path) == document["spec"]:
            return True
        if path in self._written:
            if not await self._update(path, document):
                return False
        elif not await self._create(path, document):
            return False
        self._written[path] = document["spec"]
        return True

    async def _update(self, path: str, document: Document) -> bool:
        """Updates the object; false if it was deleted: the next check finds out if it is still needed."""
        try:
            await self._api.patch(path, {"spec": document["spec"]})
        except ApiError as error:
            if not error.is_absent:
                raise
            del self._written[path]
            return False
        return True

    async def _create(self, path: str, document: Document) -> bool:
        kind, name = document["kind"], document["metadata"]["name"]
        try:
            await self._api.create(path.rpartition("/")[0], document)
            return True
        except ApiError as error:
            if not error.is_conflict:
                raise
        there = await self._api.get(path)
        if disruption.is_of(there, self._record.job):
            if kind == disruption.KIND and not disruption.is_as_desired(there, document):
                await self._api.patch(path, {"spec": document["spec"]})
            return True  # a Service never changes
        if not disruption.is_of_an_earlier(there, self._record.job):
            text = f"A {kind} {name} that does not belong to this job exists; Outrider does not change it."
            self._report(f"{kind}Conflict", text)
        return False

    def _path(self, plural: str, document: Document) -> str:
        folder = paths.folder(document["apiVersion"], plural, self._record.namespace)
        return paths.named(folder, document["metadata"]["name"])

    def _report(self, kind: str, reason: str) -> None:
        """Logs the sentence and emits it as an Event, once."""
        if reason not in self._reported:
            self._reported.add(reason)
            log.warning("%s: %s", self._record.name, reason)
            self._record.add(kind, reason, "warning", None, "", {})
