"""Authorizes readers of /metrics and of recordings by their bearer token, as Kubernetes' own components do.

Each token costs a TokenReview and a SubjectAccessReview; the answers are cached for a while. The metrics name the jobs
of all tenants, so a reader, who may `get` the path, gets either all of them or none. A recording is one job's: its
reader may `get` the subresource `recording` of that ElasticJob.
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
"""Seconds for which a positive and a negative answer are cached."""
KEPT = 256
"""Most cached answers; the oldest are dropped."""
AT_ONCE = 4
"""Most tokens under review at one time; further requests are answered 503."""


@dataclass(frozen=True, slots=True)
class Refused:
    status: int
    why: str

    def response(self) -> web.Response:
        response = failure(self.status, self.why)
        if self.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response


@dataclass(frozen=True, slots=True)
class Access:
    """What a reader must be allowed to do: the attributes of a SubjectAccessReview."""

    kind: str
    attributes: tuple[tuple[str, str], ...]
    refusal: str
    """The text of an answer of 403, behind the user's name."""


METRICS = Access("nonResourceAttributes", (("path", PATH), ("verb", "get")),
                 f"cannot get {PATH}: bind it to outrider-metrics-reader")  # fmt: skip
UNAUTHENTICATED = Refused(401, "this path requires a token of the cluster: Authorization: Bearer TOKEN")
BUSY = Refused(503, "too many tokens are under review; retry later")


class Readers:
    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._kept: dict[bytes, tuple[float, Refused | None]] = {}
        """Cached answers by the token's digest: when each expires, and the refusal (None: allowed)."""
        self._asking: dict[bytes, asyncio.Task[Refused | None]] = {}

    async def why_refused(self, authorization: str, access: Access = METRICS) -> Refused | None:
        """The refusal for this value of the Authorization header; None if the access is allowed."""
        if not authorization.lower().startswith(SCHEME) or len(authorization) > TOKEN_LENGTH:
            return UNAUTHENTICATED
        token = authorization[len(SCHEME) :].strip()
        digest = sha256(f"{token} {access.attributes}".encode()).digest()
        until, answer = self._kept.get(digest, (0.0, None))
        if self._clock() < until:
            return answer
        asking = self._asking.get(digest)
        if asking is None:
            if len(self._asking) >= AT_ONCE:
                return BUSY
            asking = self._asking[digest] = asyncio.ensure_future(self._ask(digest, token, access))
        return await asyncio.shield(asking)

    async def _ask(self, digest: bytes, token: str, access: Access) -> Refused | None:
        try:
            answer = await self._review(token, access)
        except (ApiError, TimeoutError):
            return Refused(503, "the API server could not review this token; retry later")
        finally:
            del self._asking[digest]
        self._keep(digest, answer)
        return answer

    def _keep(self, digest: bytes, answer: Refused | None) -> None:
        self._kept.pop(digest, None)
        self._kept[digest] = (self._clock() + (REFUSED_SECONDS if answer else ALLOWED_SECONDS), answer)
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]

    async def _review(self, token: str, access: Access) -> Refused | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = mapping((await self._api.create(TOKEN_REVIEWS, review)).get("status"))
        if status.get("authenticated") is not True:
            return UNAUTHENTICATED
        user = mapping(status.get("user"))
        status = mapping((await self._api.create(ACCESS_REVIEWS, _access_of(user, access))).get("status"))
        if status.get("allowed") is not True:
            return Refused(403, f"{user.get('username')} {access.refusal}")
        return None


def recording_of(namespace: str, name: str) -> Access:
    """The right to read the recording of this job."""
    resource = {"group": "outrider.dev", "resource": "elasticjobs", "subresource": "recording"}
    attributes = {"verb": "get", "namespace": namespace, "name": name, **resource}
    refusal = f"cannot get elasticjobs/recording in the namespace {namespace}: outrider-edit has that right"
    return Access("resourceAttributes", tuple(attributes.items()), refusal)


def _access_of(user: dict[str, Any], access: Access) -> dict[str, Any]:
    who = {"user": user.get("username"), **{name: user[name] for name in ("uid", "groups", "extra") if user.get(name)}}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**who, access.kind: dict(access.attributes)},
    }
