"""Holds the Lease by which one replica is the master.

`outrider.master.core.k8s.values.leases` decides what is written. The holder counts its time from before the write was
sent, so that it stops before another replica may start. A process that was frozen finds its time over when it next
checks, before it acts (`is_held`); its clock also runs while the machine is suspended. After an outage of the API
server the same holder may continue, with the same term, if no other replica has taken the Lease.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from outrider.master.core.k8s.values.leases import HELD, decide
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.api.outage import Outage

RENEW_EVERY = 2.0
LOOK_EVERY = 1.0
ANSWER_WITHIN = 5.0
"""Time-out of one try in seconds, short enough that after a dead connection there is time for another try."""
MOST_LIFTED = 1_000_000_000
"""Highest term taken over from a job's status: the Lease counts to 2,147,483,647, and no replica could follow that."""

log = logging.getLogger("lease")


def since_boot() -> float:
    """Seconds since boot, including those in which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """`me` must be unique to the process: a restarted container takes its own term. `api` must have its own
    connections: if the renewal waited behind the pods of a large job, the Lease would run out."""

    def __init__(self, api: Api, name: str, namespace: str, me: str, clock: Callable[[], float] = since_boot):
        self._api, self._name, self._namespace, self._me, self._clock = api, name, namespace, me, clock
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._seen: tuple[str, float] = ("", 0.0)
        self._held_until = 0.0
        self._is_lost = False
        self._outage = Outage(log)

    @property
    def is_held(self) -> bool:
        return self._clock() < self._held_until

    async def acquire(self) -> int:
        """Waits until this process holds the Lease; returns the term."""
        while True:
            term = await self._try()
            if term is not None:
                log.info("this replica is the master, with term %d", term)
                return term
            await asyncio.sleep(LOOK_EVERY)

    async def has_another_holder(self) -> bool:
        lease, *_ = await self._read()
        return ((lease or {}).get("spec") or {}).get("holderIdentity") not in (None, "", self._me)

    async def keep(self) -> None:
        """Renews the Lease, however long the API server was away; returns when another process holds it."""
        while not self._is_lost:
            await asyncio.sleep(RENEW_EVERY)
            await self._try(renews=True)
        log.error("another replica holds the Lease: this one is no longer the master")

    async def lift(self, term: int, made: str) -> bool:
        """Whether the higher `term` in the status of a job that was `made` then (RFC 3339) may be a master's.

        True if another process holds the Lease, as the term may be its own. True also if the job is older than the
        Lease: that was then deleted, terms started again, and the next holder's term is lifted above `term`.
        False if the Lease is older than the job: the term was made up by a program that may write the job's status.
        """
        lease = await self._api.get(f"{self._folder}/{self._name}")
        if lease["spec"].get("holderIdentity") != self._me:
            return True
        if lease["metadata"]["creationTimestamp"] <= made:
            return False
        if (lease["spec"].get("leaseTransitions") or 0) < term <= MOST_LIFTED:
            lease["spec"]["leaseTransitions"] = term
            await self._api.replace(f"{self._folder}/{self._name}", lease)
        return term <= MOST_LIFTED

    async def release(self) -> None:
        """Gives the Lease back, so that another replica can take over at once."""
        try:
            lease = await self._api.get(f"{self._folder}/{self._name}")
            if lease["spec"].get("holderIdentity") == self._me:
                lease["spec"]["holderIdentity"] = ""
                await self._api.replace(f"{self._folder}/{self._name}", lease)
        except ApiError as error:
            log.warning("giving the Lease back failed: %s", error)
        self._held_until = 0.0

    async def _try(self, renews: bool = False) -> int | None:
        began = self._clock()
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                read = await self._read()
                if renews and not self._is_ours(read[0]):
                    self._is_lost = True
                    return None
                claim = decide(*read, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
                if claim is None:
                    return None
                if "resourceVersion" in claim.document["metadata"]:
                    written = await self._api.replace(f"{self._folder}/{self._name}", claim.document)
                else:
                    written = await self._api.create(self._folder, claim.document)
        except (ApiError, TimeoutError) as error:
            self._seen = ("", 0.0)  # the holder could not renew it either: its time counts from the next look
            self._outage.failed(
                f"taking or renewing the Lease failed: {str(error) or 'the API server did not answer in time'}"
            )
            return None
        self._outage.over("the Lease can be taken or renewed again")
        self._seen = (written["metadata"]["resourceVersion"], began)
        self._held_until = began + HELD
        return claim.term

    def _is_ours(self, lease: Document | None) -> bool:
        """Whether the Lease is ours. A deleted Lease is, if we still held it; otherwise another may have held it
        since."""
        return self.is_held if lease is None else lease["spec"].get("holderIdentity") == self._me

    async def _read(self) -> tuple[Document | None, str, str, str, float]:
        try:
            lease: Document | None = await self._api.get(f"{self._folder}/{self._name}")
        except ApiError as error:
            if not error.is_absent:
                raise
            lease = None
        version = lease["metadata"]["resourceVersion"] if lease is not None else ""
        if version != self._seen[0]:
            self._seen = (version, self._clock())
        return lease, self._name, self._namespace, self._me, self._clock() - self._seen[1]
