"""Who a sidecar of the cluster is: a ticket of an earlier Welcome, else its pod's service account token, which the API
server is asked about.

The token is bound to a pod, and the API server says to which one; that its job is the one that the Hello names follows
from the core, which knows each of its members by the UID of its pod. So a token of another job's pod, of a pod that is
gone, an expired one and one for another audience are all refused, each with its sentence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from master.core.cluster import tickets
from master.core.cluster.names import AUDIENCE, Document
from master.core.events import Event
from master.shell.kubernetes.api import Api, ApiError
from master.shell.kubernetes.predecessors import OF_MASTERS
from master.shell.sidecars import Admitted, Decide, ForGood, HandsOff
from wire.messages import Hello

AT_ONCE = 20
"""Questions to the API server at one time."""
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
POD_UID = "authentication.kubernetes.io/pod-uid"
ACCOUNT = "system:serviceaccount:"

Inbox = Callable[[Hello], Callable[[Event], None] | ForGood | HandsOff | None]
"""Where the events of the job that it names go; why nowhere, if that job is over or switched off; None where there is
none (yet)."""


class ClusterDoor:
    def __init__(
        self, api: Api, key: bytes, inbox: Inbox, superseded: Callable[[int], None] = lambda _term: None
    ) -> None:
        """`superseded`: another master says that it has this term."""
        self._api, self._key, self._inbox, self._superseded = api, key, inbox, superseded
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def admit(self, hello: Hello, decide: Decide) -> None:
        if hello.job == OF_MASTERS and tickets.is_good(self._key, hello, time.time()):
            decide(f"{hello.member[:80]!r} is a master of term {hello.term}")
            self._superseded(hello.term)
            return
        put = self._inbox(hello)
        if put is None:
            decide(f"this master has no job {hello.job[:120]!r} (yet)")
        elif isinstance(put, ForGood | HandsOff):
            decide(put)
        elif hello.ticket and tickets.is_good(self._key, hello, time.time()):
            decide(self._admitted(hello, put))
        else:
            task = asyncio.ensure_future(self._ask(hello, put, decide))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, hello: Hello, put: Callable[[Event], None], decide: Decide) -> None:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": hello.token, "audiences": [AUDIENCE]},
        }
        try:
            async with self._turns:
                answer = await self._api.create(REVIEWS, review)
        except ApiError as error:
            decide(f"the API server could not say whose token {hello.member[:80]!r} has: {error}")
            return
        why_not = why_refused(answer.get("status") or {}, hello)
        decide(why_not or self._admitted(hello, put))

    def _admitted(self, hello: Hello, put: Callable[[Event], None]) -> Admitted:
        return Admitted(put, lambda: tickets.issue(self._key, hello, time.time()))


def why_refused(status: Document, hello: Hello) -> str:
    """From a TokenReview's status; empty where the token is that of the pod that says Hello."""
    who = f"the token of {hello.member[:80]!r}"
    if not status.get("authenticated"):
        return f"{who} is not good: {status.get('error') or 'the API server does not know it'}"
    if AUDIENCE not in (status.get("audiences") or ()):
        return f"{who} is not for the audience {AUDIENCE!r}"
    user = status.get("user") or {}
    namespace = str(user.get("username") or "").removeprefix(ACCOUNT).partition(":")[0]
    if namespace != hello.job.partition("/")[0]:
        return f"{who} is of namespace {namespace!r}, and job {hello.job[:120]!r} is of another one"
    uids = (user.get("extra") or {}).get(POD_UID) or []
    if hello.uid not in uids:
        return f"{who} is bound to another pod than {hello.uid!r}"
    return ""
