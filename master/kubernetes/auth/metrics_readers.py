"""Who may read /metrics. Whoever shows a token of the cluster that may get that path may, as of Kubernetes' own parts.

Two questions a token, a TokenReview and a SubjectAccessReview, and the answers are kept for a while. The names of all
tenants' jobs are in there: who may not read all of it reads nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from aiohttp import web

from outrider.master.core.k8s.values.fields import mapping
from outrider.master.kubernetes.api.client import Api, ApiError
from outrider.runtime.http import failure

PATH = "/metrics"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SCHEME = "bearer "
TOKEN_LENGTH = 16_384
ALLOWED_SECONDS, REFUSED_SECONDS = 60.0, 10.0
"""An answer is kept for so long."""
KEPT = 256
"""Answers, the newest."""
AT_ONCE = 4
"""Questions at one time; who comes beside them is told to come again."""


@dataclass(frozen=True, slots=True)
class Refused:
    status: int
    why: str

    def response(self) -> web.Response:
        response = failure(self.status, self.why)
        if self.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response


NOBODY = Refused(401, "GET /metrics asks for a token of the cluster: Authorization: Bearer TOKEN")
BUSY = Refused(503, "too many tokens are being looked at: ask again")


class Readers:
    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._kept: dict[bytes, tuple[float, Refused | None]] = {}
        """By the token's digest, until when, and the answer."""
        self._asking: dict[bytes, asyncio.Task[Refused | None]] = {}

    async def why_refused(self, authorization: str) -> Refused | None:
        """Of the header's value; None where the metrics may be read."""
        if not authorization.lower().startswith(SCHEME) or len(authorization) > TOKEN_LENGTH:
            return NOBODY
        token = authorization[len(SCHEME) :].strip()
        digest = sha256(token.encode()).digest()
        until, answer = self._kept.get(digest, (0.0, None))
        if self._clock() < until:
            return answer
        asking = self._asking.get(digest)
        if asking is None:
            if len(self._asking) >= AT_ONCE:
                return BUSY
            asking = self._asking[digest] = asyncio.ensure_future(self._ask(digest, token))
        return await asyncio.shield(asking)

    async def _ask(self, digest: bytes, token: str) -> Refused | None:
        try:
            answer = await self._asked(token)
        except (ApiError, TimeoutError):
            return Refused(503, "the API server could not say whose token this is: ask again")
        finally:
            del self._asking[digest]
        self._keep(digest, answer)
        return answer

    def _keep(self, digest: bytes, answer: Refused | None) -> None:
        self._kept.pop(digest, None)
        self._kept[digest] = (self._clock() + (REFUSED_SECONDS if answer else ALLOWED_SECONDS), answer)
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]

    async def _asked(self, token: str) -> Refused | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = mapping((await self._api.create(TOKEN_REVIEWS, review)).get("status"))
        if status.get("authenticated") is not True:
            return NOBODY
        user = mapping(status.get("user"))
        status = mapping((await self._api.create(ACCESS_REVIEWS, _access_of(user))).get("status"))
        if status.get("allowed") is not True:
            return Refused(403, f"{user.get('username')} may not get {PATH}: bind it to outrider-metrics-reader")
        return None


def _access_of(user: dict[str, Any]) -> dict[str, Any]:
    who = {"user": user.get("username"), **{name: user[name] for name in ("uid", "groups", "extra") if user.get(name)}}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**who, "nonResourceAttributes": {"path": PATH, "verb": "get"}},
    }
