"""Authenticates the cluster's sidecars by a ticket of an earlier Welcome, or by their pod's service account token.

The API server reviews the token and reports the pod to which it is bound. The core knows each member by the UID of its
pod, which links the token to the job that the Hello names. So a token of another job's pod, of a deleted pod, an
expired one and one for another audience are all refused, each with its own sentence. The API server's reasons go into
the log alone.

After a refused token, the connection must wait ever longer before its next token is reviewed. A ticket needs no review.
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
"""Seconds for which an accepted token is not reviewed again over the same connection: a sidecar that waits for its job
says Hello every 2 s."""
SLOWEST = 64.0
"""Longest pause in seconds between two token reviews of one connection."""
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
POD_UID = "authentication.kubernetes.io/pod-uid"
ACCOUNT = "system:serviceaccount:"

Inbox = Callable[[Hello], Callable[[Event], None] | ForGood | HandsOff | Denied | None]
"""Maps a Hello to the receiver of its job's events, or to the refusal if that job is over or switched off; None if
there is no such job (yet)."""


class ClusterDoor:
    def __init__(
        self, api: Api, key: bytes, inbox: Inbox, superseded: Callable[[int], None] = lambda _term: None
    ) -> None:
        """`superseded` is called with the term of another master that has announced itself."""
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
            decide(Denied(f"the last token of this connection was refused; retry in {wait:.0f} s", "early",
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

        busy = Denied("too many tokens wait for review; retry later", "busy")
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
            why = f"the API server could not review the token of {hello.member[:80]!r}"
            return Denied(why, "unknown", _quoted(error))
        return why_refused(mapping(answer.get("status")), hello)

    def _where(self, hello: Hello) -> Verdict:
        """The receiver of an authenticated member's events. Only authenticated members learn whether a job exists."""
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
    """The refusal by a TokenReview's status; None if the token belongs to the pod that says Hello."""
    who = f"the token of {hello.member[:80]!r}"
    if not status.get("authenticated"):
        return Denied(f"{who} was refused", "token", _quoted(status.get("error") or "unknown to the API server"))
    if AUDIENCE not in (status.get("audiences") or ()):
        return Denied(f"{who} is not for the audience {AUDIENCE!r}", "token")
    user = status.get("user") or {}
    namespace = str(user.get("username") or "").removeprefix(ACCOUNT).partition(":")[0]
    if namespace != hello.job.partition("/")[0]:
        return Denied(f"{who} is from namespace {namespace!r}, not from that of job {hello.job[:120]!r}", "token")
    uids = (user.get("extra") or {}).get(POD_UID) or []
    if hello.uid not in uids:
        return Denied(f"{who} is not bound to the pod with uid {hello.uid!r}", "token")
    return None
