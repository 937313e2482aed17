"""Answers the API server's admission reviews of pods and ElasticJobs over HTTPS (docs/contracts.md §8).

A fault of ours never blocks a pod or a job: an error in here is reported in the answer's warnings and in the log, and
the object is admitted unchanged (hence the broad excepts). So is an object of another kind, which a user's selector may
send. Only a malformed request is refused, with 400, and one whose body does not arrive, with 503; the API server then
continues without us (failurePolicy Ignore). The functions passed in make the decisions.
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
"""Largest body in bytes: an object in the API server may have 3 MiB, and a review of an update holds two."""
DECIDE_SECONDS = 4.0
"""Time-out of a decision in seconds: after 5 s the API server creates the pod without us, and without a message."""
KEEP_ALIVE = 300.0
"""Seconds until an idle connection is closed, longer than the API server keeps one (90 s), so that it never writes into
a connection that we have just closed."""
MARKS, MOST_MARKS = (b",", b"[", b"{"), 200_000
"""Most commas and opening brackets in a body. A review of two objects of the largest accepted size has half as many;
each costs the parser up to a microsecond, in which no other request is answered."""
UID, UID_WITHIN = re.compile(rb'"request":\{"uid":"([-0-9A-Za-z]{1,64})"'), 4096
CREATE = re.compile(rb'"operation":"CREATE"')
"""The review's uid and operation, which an API server writes in front of the objects."""
CHECK = "/validate-elasticjobs"
WARNING_LENGTH, WARNINGS_LENGTH = 256, 4000
"""Most characters of one warning and of all warnings; the API server truncates longer ones."""

Mutation = tuple[Document | None, Sequence[str]]
Mutate = Callable[[Document, str, Document], Mutation | Awaitable[Mutation]]
"""Maps the pod, its namespace and the request to the new pod (None: unchanged) and warnings for the pod's creator."""
Normalise = Callable[[Document, Document | None], Document]
Validate = Callable[[Document, Document | None], list[str] | Awaitable[list[str]]]
"""Maps the ElasticJob and the one that it replaces to its errors, each with the path of the field."""
Remark = Callable[[Document], list[str]]
"""Maps a valid ElasticJob to warnings for its user."""
Found = TypeVar("Found")

log = logging.getLogger("webhook")


class WrongReview(Exception):
    """The request is not an admission review for this webhook; the message says why."""


class Unparsed(Exception):
    """The objects are too large to be parsed."""

    def __init__(self, request: Document, is_new: bool) -> None:
        super().__init__(f"the object must have at most {bounds.MOST_VALUES} values")
        self.request, self.is_new = request, is_new


class NotOurs(Exception):
    """The review is about another kind or operation; the message names it."""

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
        if too_large := bounds.too_large(pod):
            return _answer(request, warnings=[f"outrider: the pod is not changed: {too_large}"])
        try:
            namespace = request.get("namespace") or (pod.get("metadata") or {}).get("namespace") or "default"
            new, warnings = await self._decided(self._mutate(deepcopy(pod), str(namespace), request))
            return _answer(request, patch=_patch(pod, new), warnings=warnings)
        except Exception as error:
            return _admit_unchanged(request, "the pod is not changed", error)

    async def _elasticjob(self, http: web.Request) -> web.Response:
        request = _request(await self._bodies.read(http), http.path, KIND)
        job = request["object"]
        if bounds.too_large(job) or bounds.too_large(request.get("oldObject")):
            return _answer(request)  # the validating webhook, which is called next, reports it
        try:
            return _answer(request, patch=_patch(job, self._normalise(deepcopy(job), request.get("oldObject"))))
        except Exception as error:
            return _admit_unchanged(request, "the ElasticJob is not changed", error)

    async def _check(self, http: web.Request) -> web.Response:
        request = _request(await self._bodies.read(http), http.path, KIND)
        job = request["object"]
        try:
            if (job.get("metadata") or {}).get("deletionTimestamp"):
                return _answer(request)  # errors must not block its deletion
            if too_large := bounds.too_large(job):
                return _answer(request, wrong=[too_large])
            old = request.get("oldObject")
            old = None if bounds.too_large(old) else old  # a job of that size was never run
            wrong = await self._decided(self._validate(deepcopy(job), old))
            return _answer(request, wrong=wrong, warnings=[f"outrider: {each}" for each in self._remark(job)])
        except Exception as error:
            return _admit_unchanged(request, "the ElasticJob is stored without validation", error)

    async def _decided(self, found: Found | Awaitable[Found]) -> Found:
        if not inspect.isawaitable(found):
            return found
        async with asyncio.timeout(self._seconds):
            return await found


class HttpsServer:
    """`certify` may be called again at any time; later connections get the new certificate. `client_cas` (PEM): CAs of
    which a client must have a certificate; empty: clients need none."""

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
        """Takes a PEM certificate and key. Python loads only files: this one is in memory, so the key touches no
        disk."""
        descriptor = os.memfd_create("certificate")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(certificate + b"\n" + key)
            self._context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    async def start(self, host: str | None, port: int) -> int:
        """Starts serving and returns the port, which the system chooses if `port` is 0."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=self._context).start()
        return int(self._runner.addresses[0][1])

    def leave(self) -> None:
        """Closes each connection after its next answer, so that the client connects to another replica."""
        self._is_leaving = True

    async def _close_if_leaving(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self._is_leaving:
            response.force_close()
            response.headers["Connection"] = "close"

    async def stop(self) -> None:
        await self._runner.cleanup()


# -- requests -------------------------------------------------------------------------------------------------------
@web.middleware
async def _refusals(request: web.Request, handler: Any) -> web.StreamResponse:
    """Answers every refusal, also those of aiohttp, with `{"error": sentence}`."""
    try:
        answer: web.StreamResponse = await handler(request)
        return answer
    except NotOurs as error:
        log.warning("%s: %s", request.path, error)
        return _answer(error.request, warnings=[f"outrider: the object is not changed: {error}"])
    except Unparsed as error:
        log.warning("%s: %s", request.path, error)
        if request.path == CHECK and error.is_new:  # an edit is admitted: it may make it smaller or remove a finalizer
            return _answer(error.request, wrong=[f"spec: {error}"])
        return _answer(error.request, warnings=[f"outrider: the object is not changed: {error}"])
    except WrongReview as error:
        log.warning("%s: %s", request.path, error)
        return failure(400, str(error))
    except Unread as error:
        log.warning("%s: %s", request.path, error)
        return failure(503, str(error))
    except web.HTTPException as error:
        return failure(error.status, f"{request.method} {request.path}: {error.reason}")


def _request(body: bytes, path: str, kind: str) -> Document:
    """The request of a review of an object of this kind. Raises Unparsed, WrongReview or NotOurs."""
    if sum(map(body.count, MARKS)) > MOST_MARKS and (uid := UID.search(body, 0, UID_WITHIN)) is not None:
        raise Unparsed({"uid": uid[1].decode()}, is_new=CREATE.search(body, 0, UID_WITHIN) is not None)
    try:
        review = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WrongReview(f"the body must be an AdmissionReview in JSON: {error}") from error
    if not isinstance(review, dict) or any(review.get(name) != value for name, value in REVIEW.items()):
        shown = [_shown(review.get(name)) for name in REVIEW] if isinstance(review, dict) else ["not an object"]
        raise WrongReview(f"the body must be an AdmissionReview of admission.k8s.io/v1, but is {' '.join(shown)}")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str) or not request["uid"]:
        raise WrongReview("request.uid: Required value")
    group_kind = request.get("kind")
    found = group_kind.get("kind") if isinstance(group_kind, dict) else None
    if found != kind:
        raise NotOurs(request, f"request.kind.kind is {_shown(found)}, but {path} handles only {kind}")
    if not isinstance(request.get("object"), dict):
        raise NotOurs(request, "request.object is not an object; only CREATE and UPDATE are handled")
    return request


def _shown(value: object) -> str:
    return repr(value)[:60]


# -- answers --------------------------------------------------------------------------------------------------------
def _answer(
    request: Document, *, wrong: Sequence[str] = (), patch: Sequence[Document] = (), warnings: Sequence[str] = ()
) -> web.Response:
    response: Document = {"uid": request["uid"], "allowed": not wrong}
    if wrong:
        response["status"] = {"code": 422, "reason": "Invalid", "message": "; ".join(wrong)}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": b64encode(json.dumps(patch).encode()).decode()}
    shown = list(_cut(warnings))
    if shown:
        response["warnings"] = shown
    return web.json_response(REVIEW | {"response": response})


def _admit_unchanged(request: Document, what: str, error: Exception) -> web.Response:
    why = "the decision timed out" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
    log.error("%s: %s", what, why, exc_info=error)
    return _answer(request, warnings=[f"outrider: {what}, because the webhook failed: {why}"])


def _cut(warnings: Sequence[str]) -> Iterator[str]:
    """The warnings as HTTP headers need them: one line each, of limited length in total."""
    left = WARNINGS_LENGTH
    for warning in warnings:
        line = "".join(char if char.isprintable() else " " for char in warning)[: min(WARNING_LENGTH, left)]
        left -= len(line)
        if line:
            yield line


def _patch(old: Document, new: Document | None) -> list[Document]:
    return [] if new is None else list(differences(old, new))


def differences(old: Document, new: Document, path: str = "") -> Iterator[Document]:
    """A JSON patch (RFC 6902) from `old` to `new`, object by object; a list that differs is replaced as a whole."""
    for name in dict.fromkeys((*old, *new)):
        here = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in new:
            yield {"op": "remove", "path": here}
        elif name not in old:
            yield {"op": "add", "path": here, "value": new[name]}
        elif isinstance(old[name], dict) and isinstance(new[name], dict):
            yield from differences(old[name], new[name], here)
        elif json.dumps(old[name], sort_keys=True) != json.dumps(
            new[name], sort_keys=True
        ):  # True == 1, but not in JSON
            yield {"op": "replace", "path": here, "value": new[name]}
