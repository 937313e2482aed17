"""Who a sidecar of the cluster is. A ticket of an earlier Welcome says it, else its pod's service account token, which
the API server is asked about.

The token is bound to a pod, and the API server says to which one; that its job is the one that the Hello names follows
from the core, which knows each of its members by the UID of its pod. So a token of another job's pod, of a pod that is
gone, an expired one and one for another audience are all refused, each with its sentence. What the API server says of a
token goes into the log alone.

A connection whose token was refused is asked for another one ever more slowly; who has a ticket waits for nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from outrider.master.core.events import Event
from outrider.master.core.k8s.values import session_ticket
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import AUDIENCE, Document
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.master.kubernetes.auth.token_reviews import Question, Reviews
from outrider.master.kubernetes.predecessors import OF_MASTERS
from outrider.master.service.sidecars import (
    RETRY_AFTER,
    Admitted,
    Connection,
    Decide,
    Denied,
    ForGood,
    HandsOff,
    Verdict,
)
from outrider.wire.messages.membership import Hello

PROVED_FOR = 60.0
"""Seconds for which a token need not be looked at again over the same connection: who waits for its job asks each 2."""
SLOWEST = 64.0
"""Seconds between two tokens of one connection, at most."""
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
POD_UID = "authentication.kubernetes.io/pod-uid"
ACCOUNT = "system:serviceaccount:"

Inbox = Callable[[Hello], Callable[[Event], None] | ForGood | HandsOff | Denied | None]
"""Where the events of the job that it names go; why nowhere, if that job is over or switched off; None where there is
none (yet)."""


class ClusterDoor:
    def __init__(
        self, api: Api, key: bytes, inbox: Inbox, superseded: Callable[[int], None] = lambda _term: None
    ) -> None:
        """`superseded`: another master says that it has this term."""
        self._api, self._key, self._inbox, self._superseded = api, key, inbox, superseded
        self._reviews = Reviews()

    def admit(self, hello: Hello, decide: Decide, of: Connection) -> None:
        if hello.job == OF_MASTERS and session_ticket.is_good(self._key, hello, time.time()):
            decide(Denied(f"{hello.member[:80]!r} is a master of term {hello.term}", "master"))
            self._superseded(hello.term)
            return
        now = asyncio.get_running_loop().time()
        has_ticket = bool(hello.ticket) and session_ticket.is_good(self._key, hello, time.time())
        if has_ticket or (of.proved == (hello.job, hello.uid, hello.token) and now < of.proved_until):
            decide(self._where(hello))
        elif (wait := of.asks_at - now) > 0:
            decide(Denied(f"the last token over this connection was not accepted: again in {wait:.0f} s", "early",
                          retry_after=max(wait, RETRY_AFTER)))  # fmt: skip
        else:
            self._put_into_line(hello, decide, of)

    def _put_into_line(self, hello: Hello, decide: Decide, of: Connection) -> None:
        async def ask() -> bool:
            refused = await self._why_not(hello)
            if refused is not None and refused.kind == "token":
                decide(_slowed(refused, of))
                return False
            if refused is None:
                of.proved = (hello.job, hello.uid, hello.token)
                of.proved_until = asyncio.get_running_loop().time() + PROVED_FOR
            decide(refused or self._where(hello))
            return True

        busy = Denied("too many wait to have their tokens looked at", "busy")
        self._reviews.put(Question(of.address, ask, lambda: of.is_gone, lambda: decide(busy)))

    async def _why_not(self, hello: Hello) -> Denied | None:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": hello.token, "audiences": [AUDIENCE]},
        }
        try:
            answer = await self._api.create(REVIEWS, review)
        except ApiError as error:
            why = f"the API server could not say whose token {hello.member[:80]!r} has"
            return Denied(why, "unknown", _quoted(error))
        return why_refused(mapping(answer.get("status")), hello)

    def _where(self, hello: Hello) -> Verdict:
        """Where the events of one go who is who it says it is. Nobody else is told whether there is such a job."""
        put = self._inbox(hello)
        if put is None:
            return Denied(f"this master has no job {hello.job[:120]!r} (yet)", "job")
        if isinstance(put, ForGood | HandsOff | Denied):
            return put
        return Admitted(put, lambda: session_ticket.issue(self._key, hello, time.time()))


def _slowed(denied: Denied, of: Connection) -> Denied:
    pause = min(RETRY_AFTER * 2**of.refused_tokens, SLOWEST)
    of.refused_tokens += 1
    of.asks_at = asyncio.get_running_loop().time() + pause
    return replace(denied, retry_after=pause)


def _quoted(text: object) -> str:
    return repr(str(text)[:300])


def why_refused(status: Document, hello: Hello) -> Denied | None:
    """From a TokenReview's status; None where the token is that of the pod that says Hello."""
    who = f"the token of {hello.member[:80]!r}"
    if not status.get("authenticated"):
        return Denied(
            f"{who} was not accepted", "token", _quoted(status.get("error") or "the API server does not know it")
        )
    if AUDIENCE not in (status.get("audiences") or ()):
        return Denied(f"{who} is not for the audience {AUDIENCE!r}", "token")
    user = status.get("user") or {}
    namespace = str(user.get("username") or "").removeprefix(ACCOUNT).partition(":")[0]
    if namespace != hello.job.partition("/")[0]:
        return Denied(f"{who} is of namespace {namespace!r}, and job {hello.job[:120]!r} is of another one", "token")
    uids = (user.get("extra") or {}).get(POD_UID) or []
    if hello.uid not in uids:
        return Denied(f"{who} is bound to another pod than {hello.uid!r}", "token")
    return None
