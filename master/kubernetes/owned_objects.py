"""What a job has besides its pods: its PodDisruptionBudget, and Services where members need an address.

Looked at when the job begins, and when it or its pods change; the API server is asked only where what should be there
differs from what was last written. All of it goes with the ElasticJob, by its owner references. What is there under the
name and is not ours is left alone, and its user is told. Nothing of a training depends on any of it: what is refused is
told once and tried again later.
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
"""Seconds between two looks: pods come in crowds."""
AT_REST = 10.0
"""A look this often while somebody is missing, because the budget counts for how long."""
AGAIN = 60.0
"""Seconds after which what was refused is tried again."""

TOO_MANY = (
    "The PodDisruptionBudgets of the namespace are more than 8 MiB together: it is not looked whether one of them "
    "holds the job's pods, and none is made for it."
)

log = logging.getLogger("belongings")


class Belongings:
    """`pods`: those that the watch shows."""

    def __init__(
        self,
        api: Api,
        record: JobRecord,
        pods: Callable[[], Sequence[Document]],
        is_master: Callable[[], bool],
        budgets: Budgets | None = None,
    ) -> None:
        """`budgets`: what is known of those of others, for all jobs together."""
        self._budgets = budgets or Budgets(api)
        self._api, self._record, self._pods, self._is_master = api, record, pods, is_master
        self._news = asyncio.Event()
        self._patience = disruption.Patience()
        self._written: dict[str, Any] = {}
        """By path, the spec that the API server has."""
        self._version: str | None = None
        self._left: set[str] = set()
        """Paths that are somebody else's business."""
        self._told: set[str] = set()

    def stir(self) -> None:
        """The job or its pods have changed."""
        self._news.set()

    async def keep(self) -> None:
        """Until it is cancelled."""
        while True:
            self._news.clear()
            pause = None if self._patience.is_settled else AT_REST
            if self._is_master() and not await self._look():
                pause = AGAIN
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), pause)
            await asyncio.sleep(LEAST_APART)

    async def _look(self) -> bool:
        """False where something is not as it should be yet."""
        job = self._record.job
        lacking = self._patience.look(disruption.lacking(job, self._pods()), time.monotonic())
        try:
            services = [await self._have("services", service) for service in addresses.services_of(job)]
            return await self._have_budget(job, lacking) and all(services)
        except ApiError as error:
            self._tell("OwnedObjectRejected", f"A Service or PodDisruptionBudget of the job was refused: {error}.")
            return False

    # -- the budget -------------------------------------------------------------------------------------------------
    async def _have_budget(self, job: Document, lacking: int) -> bool:
        if self._version is None:
            self._version = disruption.api_version(await self._api.get(f"/apis/{disruption.GROUP}")) or ""
        if not self._version:
            self._tell(
                "PDBUnsupported", "The API server has no PodDisruptionBudgets: a drain takes all members of a node."
            )
            return True
        budget = disruption.budget_of(job, self._version, lacking)
        path = self._path(disruption.PLURAL, budget)
        if path not in self._written and path not in self._left:
            there = await self._budgets.of(path.rpartition("/")[0], self._version)
            if there is None:
                self._left.add(path)
                self._tell("ForeignPDBFound", TOO_MANY)
            elif others := disruption.others(there, job, self._pods()):
                text = f"The pods have a PodDisruptionBudget already ({', '.join(others)}), and it is left at that."
                self._left.add(path)
                self._tell("ForeignPDBFound", text)
        return path in self._left or await self._have(disruption.PLURAL, budget)

    # -- any of them ------------------------------------------------------------------------------------------------
    async def _have(self, plural: str, document: Document) -> bool:
        """It is there, and as it should be."""
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
        """False where somebody has deleted it: the next look finds out whether it is still wanted."""
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
            if kind == disruption.KIND and not disruption.is_as_wanted(there, document):
                await self._api.patch(path, {"spec": document["spec"]})
            return True  # a Service is the same for ever
        if not disruption.is_of_an_earlier(there, self._record.job):
            self._tell(f"{kind}Conflict", f"There is a {kind} {name} that is not this job's; it is left as it is.")
        return False

    def _path(self, plural: str, document: Document) -> str:
        folder = paths.folder(document["apiVersion"], plural, self._record.namespace)
        return paths.named(folder, document["metadata"]["name"])

    def _tell(self, kind: str, reason: str) -> None:
        """Once."""
        if reason not in self._told:
            self._told.add(reason)
            log.warning("%s: %s", self._record.name, reason)
            self._record.add(kind, reason, "warning", None, "", {})
