"""Reads and resizes the controller whose pods a job has adopted.

A user's scaling is noticed by its effect: a pod is created or deleted. So the owner's size and end are read when pods
come or go, and no requests are made otherwise. While pods are missing, the owner is also read periodically: it may have
failed, and then no pod comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from outrider.master.core.actions import FollowOwner, ResizeOwner
from outrider.master.core.events import Event, OwnerSized
from outrider.master.core.k8s.owners import completion as owners_completion
from outrider.master.core.k8s.owners import resize as owners_resize
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.limits import USUAL, Limits
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes import owner_chain
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.status_writer import JobRecord, path_of

LEAST_APART = 1.0
"""Shortest time in seconds between two reads."""
MISSING = 10.0
"""Seconds between two reads while pods are missing and nothing changes."""

log = logging.getLogger("owner")


class Owner:
    """`document` is what was read last; None before that, and if the owner is of a kind that we cannot read."""

    def __init__(
        self,
        api: Api,
        record: JobRecord,
        put: Callable[[Event], None],
        lacks_pods: Callable[[], bool],
        every: float = MISSING,
        limits: Limits = USUAL,
    ) -> None:
        self._api, self._record, self._put = api, record, put
        self._lacks_pods, self._every, self._limits = lacks_pods, every, limits
        self._path = owner_chain.path_of(mapping(record.job["spec"].get("adopts")), record.namespace)
        self._news = asyncio.Event()
        self._news.set()
        self._asking = asyncio.Lock()
        self.document: Document | None = None

    def stir(self) -> None:
        """Triggers a read, as a pod came or went and the owner's size may have changed."""
        self._news.set()

    async def keep(self) -> None:
        """Reads the owner when needed, until cancelled."""
        while self._path is not None:
            if not await self._is_worth_a_look():
                continue
            self._news.clear()
            try:
                async with self._asking:
                    self._seen(await self._read(self._path))
            except ApiError as error:
                if not error.is_absent:  # a deleted owner's ElasticJob is deleted with it
                    log.warning("reading the job's owner failed: %s", error)
            await asyncio.sleep(LEAST_APART)

    async def _is_worth_a_look(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._every):
                await self._news.wait()
        return self._news.is_set() or self._lacks_pods()

    async def now(self) -> Document | None:
        """The owner as it is now: empty if it does not exist, None if it cannot be read."""
        try:
            return None if self._path is None else await self._read(self._path)
        except ApiError as error:
            if error.is_absent:
                return {}
            log.warning("reading the job's owner failed: %s", error)
            return None

    async def resize(self, action: ResizeOwner) -> None:
        if self._path is None:
            adopts = self._record.job["spec"]["adopts"]
            raise owners_resize.CannotResize(f"Outrider cannot read the size of {adopts['kind']} {adopts['name']}")
        async with self._asking:
            owner = await self._read(self._path)
            uid = owners_resize.owning_uid(self._record.job, owner)
            if owners_resize.replicas_of(owner) != action.replicas:
                patch = {"metadata": {"uid": uid}, **owners_resize.patch_of(owner, action.replicas)}
                owner = {"kind": owner["kind"], **await self._api.patch(self._path, patch)}
            self._seen(owner)

    async def follow(self, action: FollowOwner) -> None:
        owners_resize.check(self._record.job, action.replicas, self._limits)
        patch = owners_resize.following(self._record.job, action.replicas)
        await self._api.patch(path_of(self._record.namespace, self._record.name), patch)

    async def _read(self, path: str) -> Document:
        found = await self._api.get(path)
        return {"kind": self._record.job["spec"]["adopts"]["kind"], **found}

    def _seen(self, owner: Document) -> None:
        """Takes what was read, unless it is another owner of the same name."""
        if owners_resize.owns(owner, self._record.job):
            self.document = owner
            self._put(OwnerSized(owners_resize.replicas_of(owner), owners_completion.is_suspended(owner)))
            end = owners_completion.end_of(owner)
            if end is not None:
                self._put(end)
