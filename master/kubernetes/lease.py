"""Holds the Lease by which one replica is the master; what is to be written is decided in
`outrider.master.core.k8s.values.leases`.

A holder counts its time from before the write was sent, so that it stops before anyone else may begin; a process that
was frozen finds its time over at its first look, before it does anything (`is_held`). Its clock goes on while the
machine is suspended. Where the API server was away, the same holder may go on when it is back and nobody has taken the
Lease: that is no new term.
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
MOST_LIFTED = 1_000_000_000
"""The Lease counts to 2,147,483,647, and one that is there lets nobody begin."""
"""Seconds that one look has: a connection that is dead is given up in time for another try."""

log = logging.getLogger("lease")


def since_boot() -> float:
    """Seconds, those included in which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """`me` must be another text in every process, a restarted container too: it takes a term of its own. `api` has
    connections of its own: behind the pods of a large job the Lease would run out."""

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
        """Waits until it is ours; the term."""
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
        """Renews it, however long that was not possible; returns when it is lost."""
        while not self._is_lost:
            await asyncio.sleep(RENEW_EVERY)
            await self._try(renews=True)
        log.error("the Lease is another's: this replica is no longer the master")

    async def lift(self, term: int, made: str) -> bool:
        """A job that was `made` then (RFC 3339) has a higher term in its status. True where another process holds the
        Lease, whose term that may be, or where it may come from before the Lease: somebody has deleted that, the terms
        began anew, and the next holder's is to be higher. False where the Lease is older than the job: then whoever may
        write the job's status has made the term up."""
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
        """Lets the next one begin at once."""
        try:
            lease = await self._api.get(f"{self._folder}/{self._name}")
            if lease["spec"].get("holderIdentity") == self._me:
                lease["spec"]["holderIdentity"] = ""
                await self._api.replace(f"{self._folder}/{self._name}", lease)
        except ApiError as error:
            log.warning("the Lease was not given back: %s", error)
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
            self._seen = ("", 0.0)  # the holder could not renew it either: it has its time from the next look on
            self._outage.told(
                f"the Lease was not taken or renewed: {str(error) or 'the API server did not answer in time'}"
            )
            return None
        self._outage.over("the Lease is taken or renewed again")
        self._seen = (written["metadata"]["resourceVersion"], began)
        self._held_until = began + HELD
        return claim.term

    def _is_ours(self, lease: Document | None) -> bool:
        """One that somebody has deleted is made again as long as it was held; later it may have been another's."""
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
