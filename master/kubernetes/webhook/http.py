"""What the API server asks before it stores a pod or an ElasticJob, over HTTPS (docs/contracts.md §8).

No pod and no job is ever held up by a fault of ours: whatever goes wrong in here is told in the answer's warnings and
in the log, and the object is let through as it came (hence the broad excepts); so is one of a kind that nothing here is
about, which a selector of somebody's sends us. Only a request that is none is refused, with 400, and one whose body
does not come, with 503; the API server then goes on by itself (failurePolicy Ignore). What is decided is decided by the
functions that are given.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import re
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from aiohttp import web

from outrider.master.core.k8s.values import bounds
from outrider.master.core.k8s.values.names import KIND, Document
from outrider.master.service.request_bodies import READ_SECONDS, Bodies, Unread
from outrider.runtime.http import failure

REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
BODY_BYTES = 8 * 1024 * 1024
"""An object may have 3 MiB in the API server, and a review of an update holds two."""
DECIDE_SECONDS = 4.0
"""The API server waits 5 s, and then makes the pod without us and without a word."""
KEEP_ALIVE = 300.0
"""Longer than the API server keeps an idle connection (90 s), so that it never writes into one that we just closed."""
MARKS, MOST_MARKS = (b",", b"[", b"{"), 200_000
"""Commas and brackets of a body: a review of two objects of the largest size that is read has half of them, and each
costs the parser a microsecond or less, in which nobody else is answered."""
UID, UID_WITHIN = re.compile(rb'"request":\{"uid":"([-0-9A-Za-z]{1,64})"'), 4096
CREATE = re.compile(rb'"operation":"CREATE"')
"""Where an API server writes whose review it is, and of what: in front of the objects."""
CHECK = "/validate-elasticjobs"
WARNING_LENGTH, WARNINGS_LENGTH = 256, 4000
"""Characters; the API server cuts what is longer."""

Mutation = tuple[Document | None, Sequence[str]]
Mutate = Callable[[Document, str, Document], Mutation | Awaitable[Mutation]]
"""The pod, its namespace and the request; the new pod (None: as it is) and warnings for who made it."""
Normalise = Callable[[Document, Document | None], Document]
Validate = Callable[[Document, Document | None], list[str] | Awaitable[list[str]]]
"""The ElasticJob and the one that it replaces; what is wrong with it, sentences with the field's path."""
Remark = Callable[[Document], list[str]]
"""What whoever makes this ElasticJob is told, though nothing is wrong with it."""
Found = TypeVar("Found")

log = logging.getLogger("webhook")


class WrongReview(Exception):
    """This is no question to this webhook; the message says what is wrong with it."""


class Unparsed(Exception):
    """The objects are so large that they are not even parsed."""

    def __init__(self, request: Document, is_new: bool) -> None:
        super().__init__(f"the object has more than {bounds.MOST_VALUES} values, and so it is not read")
        self.request, self.is_new = request, is_new


class NotOurs(Exception):
    """A question about something else; the message says about what."""

    def __init__(self, request: Document, message: str) -> None:
        super().__init__(message)
        self.request = request


class Webhook:
    def __init__(
        self,
        mutate: Mutate,
        normalise: Normalise,
        validate: Validate,
        remark: Remark = lambda _job: [],
        seconds: float = DECIDE_SECONDS,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self._mutate, self._normalise, self._validate, self._seconds = mutate, normalise, validate, seconds
        self._remark, self._bodies = remark, Bodies(read_seconds)

    def application(self) -> web.Application:
        application = web.Application(client_max_size=BODY_BYTES, middlewares=[_refusals])
        application.add_routes(
            [
                web.post("/mutate-pods", self._pod),
                web.post("/mutate-elasticjobs", self._elasticjob),
                web.post(CHECK, self._check),
            ]
        )
        return application

    async def _pod(self, http: web.Request) -> web.Response:
        request = _request(await self._bodies.read(http), http.path, "Pod")
        pod = request["object"]
        if said := bounds.too_large(pod):
            return _answer(request, warnings=[f"outrider: the pod is made as it is: {said}"])
        try:
            namespace = request.get("namespace") or (pod.get("metadata") or {}).get("namespace") or "default"
            new, warnings = await self._decided(self._mutate(deepcopy(pod), str(namespace), request))
            return _answer(request, patch=_patch(pod, new), warnings=warnings)
        except Exception as error:
            return _let_through(request, "the pod is made as it is, without outrider", error)

    async def _elasticjob(self, http: web.Request) -> web.Response:
        request = _request(await self._bodies.read(http), http.path, KIND)
        job = request["object"]
        if bounds.too_large(job) or bounds.too_large(request.get("oldObject")):
            return _answer(request)  # what is asked next says it
        try:
            return _answer(request, patch=_patch(job, self._normalise(deepcopy(job), request.get("oldObject"))))
        except Exception as error:
            return _let_through(request, "the ElasticJob is stored as it is", error)

    async def _check(self, http: web.Request) -> web.Response:
        request = _request(await self._bodies.read(http), http.path, KIND)
        job = request["object"]
        try:
            if (job.get("metadata") or {}).get("deletionTimestamp"):
                return _answer(request)  # what is wrong with it must not keep it from going
            if said := bounds.too_large(job):
                return _answer(request, wrong=[said])
            old = request.get("oldObject")
            old = None if bounds.too_large(old) else old  # it was never run
            wrong = await self._decided(self._validate(deepcopy(job), old))
            return _answer(request, wrong=wrong, warnings=[f"outrider: {each}" for each in self._remark(job)])
        except Exception as error:
            return _let_through(request, "the ElasticJob is stored unchecked", error)

    async def _decided(self, found: Found | Awaitable[Found]) -> Found:
        if not inspect.isawaitable(found):
            return found
        async with asyncio.timeout(self._seconds):
            return await found


class HttpsServer:
    """`certify` may be called again at any time: what connects from then on meets the new certificate. `client_cas`, in
    PEM: a client must have a certificate of one of these; empty: it needs none."""

    def __init__(self, application: web.Application, client_cas: str = "") -> None:
        self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=DECIDE_SECONDS, keepalive_timeout=KEEP_ALIVE
        )
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        if client_cas:
            self._context.load_verify_locations(cadata=client_cas)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._is_leaving = False
        application.on_response_prepare.append(self._close_if_leaving)

    def certify(self, certificate: bytes, key: bytes) -> None:
        """PEM. Python loads files only: this one lives in memory, and the key comes near no disk."""
        descriptor = os.memfd_create("certificate")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(certificate + b"\n" + key)
            self._context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    async def start(self, host: str | None, port: int) -> int:
        """Returns the port, which differs from the one given where that is 0."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=self._context).start()
        return int(self._runner.addresses[0][1])

    def leave(self) -> None:
        """From now on each answer is the last of its connection: who asks again meets another replica."""
        self._is_leaving = True

    async def _close_if_leaving(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self._is_leaving:
            response.force_close()
            response.headers["Connection"] = "close"

    async def stop(self) -> None:
        await self._runner.cleanup()


# -- asking ---------------------------------------------------------------------------------------------------------
@web.middleware
async def _refusals(request: web.Request, handler: Any) -> web.StreamResponse:
    """Every refusal is `{"error": sentence}`, those of aiohttp too."""
    try:
        answer: web.StreamResponse = await handler(request)
        return answer
    except NotOurs as error:
        log.warning("%s: %s", request.path, error)
        return _answer(error.request, warnings=[f"outrider: it is let through as it is: {error}"])
    except Unparsed as error:
        log.warning("%s: %s", request.path, error)
        if request.path == CHECK and error.is_new:  # an edit may make it smaller, or let it go
            return _answer(error.request, wrong=[f"spec: {error}"])
        return _answer(error.request, warnings=[f"outrider: it is let through as it is: {error}"])
    except WrongReview as error:
        log.warning("%s: %s", request.path, error)
        return failure(400, str(error))
    except Unread as error:
        log.warning("%s: %s", request.path, error)
        return failure(503, str(error))
    except web.HTTPException as error:
        return failure(error.status, f"{request.method} {request.path}: {error.reason}")


def _request(body: bytes, path: str, kind: str) -> Document:
    """The request of a review about an object of this kind."""
    if sum(map(body.count, MARKS)) > MOST_MARKS and (uid := UID.search(body, 0, UID_WITHIN)) is not None:
        raise Unparsed({"uid": uid[1].decode()}, is_new=CREATE.search(body, 0, UID_WITHIN) is not None)
    try:
        review = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WrongReview(f"the body must be an AdmissionReview in JSON: {error}") from error
    if not isinstance(review, dict) or any(review.get(name) != value for name, value in REVIEW.items()):
        said = [_shown(review.get(name)) for name in REVIEW] if isinstance(review, dict) else ["no object"]
        raise WrongReview(f"the body must be an AdmissionReview of admission.k8s.io/v1, it is {' '.join(said)}")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str) or not request["uid"]:
        raise WrongReview("the AdmissionReview has no request with a uid")
    asked = request.get("kind")
    found = asked.get("kind") if isinstance(asked, dict) else None
    if found != kind:
        raise NotOurs(request, f"request.kind.kind is {_shown(found)}, and {path} answers for {kind}")
    if not isinstance(request.get("object"), dict):
        raise NotOurs(request, "request.object is no object, and only CREATE and UPDATE are answered")
    return request


def _shown(value: object) -> str:
    return repr(value)[:60]


# -- answering ------------------------------------------------------------------------------------------------------
def _answer(
    request: Document, *, wrong: Sequence[str] = (), patch: Sequence[Document] = (), warnings: Sequence[str] = ()
) -> web.Response:
    response: Document = {"uid": request["uid"], "allowed": not wrong}
    if wrong:
        response["status"] = {"code": 422, "reason": "Invalid", "message": "; ".join(wrong)}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": b64encode(json.dumps(patch).encode()).decode()}
    said = list(_cut(warnings))
    if said:
        response["warnings"] = said
    return web.json_response(REVIEW | {"response": response})


def _let_through(request: Document, what: str, error: Exception) -> web.Response:
    why = "it took too long" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
    log.error("%s: %s", what, why, exc_info=error)
    return _answer(request, warnings=[f"outrider: {what}, because the webhook failed: {why}"])


def _cut(warnings: Sequence[str]) -> Iterator[str]:
    """They become HTTP headers: one line each, and not too much in all."""
    left = WARNINGS_LENGTH
    for warning in warnings:
        line = "".join(char if char.isprintable() else " " for char in warning)[: min(WARNING_LENGTH, left)]
        left -= len(line)
        if line:
            yield line


def _patch(old: Document, new: Document | None) -> list[Document]:
    return [] if new is None else list(differences(old, new))


def differences(old: Document, new: Document, path: str = "") -> Iterator[Document]:
    """A JSON patch (RFC 6902) that makes `new` of `old`, object by object; a list that differs is replaced whole."""
    for name in dict.fromkeys((*old, *new)):
        here = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in new:
            yield {"op": "remove", "path": here}
        elif name not in old:
            yield {"op": "add", "path": here, "value": new[name]}
        elif isinstance(old[name], dict) and isinstance(new[name], dict):
            yield from differences(old[name], new[name], here)
        elif json.dumps(old[name], sort_keys=True) != json.dumps(new[name], sort_keys=True):  # True is 1, but not here
            yield {"op": "replace", "path": here, "value": new[name]}
