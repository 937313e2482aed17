"""Calls the API server with plain documents, over the official client's connection and credentials.

Every call has a time-out. If the server is busy (429, 5xx) or the connection breaks, the call is repeated a few times,
with a growing pause or the one that the server requests (Retry-After). A create is repeated too: a name is created only
once, so a second attempt is answered with 409, which the caller handles. Every other failure is raised as `ApiError`.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from copy import copy
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.request import getproxies_environment

import aiohttp
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config
from kubernetes.aio.client.rest import RESTClientObject

from outrider.master.core.k8s.values import nesting
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.requests import Request, request_of

SECONDS = 10.0
CONNECT_SECONDS = 5.0
SILENCE = 90.0
"""Seconds without a byte after which a watch counts as dead: the API server sends at least one bookmark a minute."""
KEEP_ALIVE = {socket.TCP_KEEPIDLE: 20, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""TCP keep-alive: seconds of idleness before the first probe, seconds between two probes, and number of probes."""
MANAGER = "outrider-master"
"""Our name in the audit log and in managedFields, for which the API server uses the user agent up to the slash."""
TRIES = 4
PAUSE = 0.2
"""Seconds before the second try; each further pause is twice as long."""
LONGEST_PAUSE = 30.0
"""Longest pause in seconds that a Retry-After of the server may impose."""
NO_PATIENCE = 1.0
"""Longest pause in seconds that a Retry-After may impose on urgent calls (`Api.apart`)."""
CREATIONS = 64
"""Most pods, over all jobs, that are created at one time: the pool has 100 connections."""
MERGE_PATCH = "application/merge-patch+json"
_PATH = re.compile(r"(/(?!\.{1,2}(/|$))([A-Za-z0-9._~:-]|%(?!2F|25)[0-9A-F]{2})+)+")
"""Paths as built by `outrider.master.core.k8s.values.paths`: no user's text is sent that was not checked there."""
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
"""One warning (https://kubernetes.io/blog/2020/09/03/warnings/). A proxy may join several into one header."""
IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


SILENT = "Silent"
"""Reason of the error of a silent watch: nothing has changed, or its connection is dead."""


class ApiError(Exception):
    """The API server refused a request, or could not be reached (status 0)."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        """`retry_after`: seconds to wait before the next try, as requested by the server."""
        super().__init__(f"{status} {reason}: {message}" if status else message)
        self.status, self.reason, self.message, self.retry_after = status, reason, message, retry_after

    @property
    def is_conflict(self) -> bool:
        return self.status == 409

    @property
    def is_absent(self) -> bool:
        return self.status == 404

    @property
    def may_pass(self) -> bool:
        """Whether a later try may succeed: the server is busy or was not reached."""
        return self.status in (0, 429) or self.status >= 500


class _KeptAlive(RESTClientObject):
    """Lets the kernel find dead connections too, also idle ones in the pool."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(limit=self.maxsize, ssl=self.ssl_context, socket_factory=_kept_alive)


def _kept_alive(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE.items():
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


class Api:
    """One connection pool. Paths are those of the HTTP API, as `/api/v1/namespaces/default/pods`."""

    def __init__(
        self, api_client: kubernetes_client.ApiClient, seconds: float = SECONDS, silence: float = SILENCE
    ) -> None:
        """`seconds`: time-out of one call. `silence`: seconds without a byte after which a watch counts as dead."""
        self._client, self._seconds, self._silence = api_client, seconds, silence
        # otherwise aiohttp looks for a netrc and for proxies at each request, which is a third of a request's cost
        api_client.configuration.client_session_kwargs = {"trust_env": bool(getproxies_environment())}
        api_client.rest_client = _KeptAlive(api_client.configuration)
        api_client.user_agent = f"{MANAGER}/{version('outrider')}"
        self._may_write: Callable[[], bool] = lambda: True
        self._longest_pause = LONGEST_PAUSE
        self._turn: AbstractAsyncContextManager[None] = nullcontext()
        self._creations = asyncio.Semaphore(CREATIONS)
        self.requests: Counter[tuple[Request, int]] = Counter()
        """Number of requests sent, each try counted, by request and status of the answer (0: no answer)."""

    @classmethod
    async def connect(cls) -> Api:
        """Connects with the pod's service account, otherwise with KUBECONFIG."""
        configuration = kubernetes_client.Configuration()
        if IN_CLUSTER.exists():
            config.load_incluster_config(configuration)
        else:
            await config.load_kube_config(client_configuration=configuration)
        return cls(kubernetes_client.ApiClient(configuration))

    def apart(self) -> Api:
        """A client for the same server with its own connections, for calls that must not wait behind the jobs' calls.

        Both clients count into the same `requests`.
        """
        found = Api(kubernetes_client.ApiClient(self._client.configuration), self._seconds, self._silence)
        found.requests, found._longest_pause = self.requests, NO_PATIENCE
        return found

    def writing_while(self, may_write: Callable[[], bool]) -> Api:
        """A client over the same connections that writes only while `may_write` returns true."""
        found = copy(self)
        found._may_write = may_write
        return found

    def in_turn(self, turn: AbstractAsyncContextManager[None]) -> Api:
        """A client over the same connections that makes each call, except watches, within `turn`."""
        found = copy(self)
        found._turn = turn
        return found

    async def close(self) -> None:
        await self._client.close()

    async def get(self, path: str, **query: str) -> Document:
        return await self._call("GET", path, query)

    async def page(self, path: str, **query: str) -> tuple[Document, int]:
        """One page of a list and its size in bytes."""
        sizes: list[int] = []
        return await self._call("GET", path, query, sizes=sizes), sizes[-1]

    async def create(
        self, path: str, document: Mapping[str, Any], warnings: list[str] | None = None, **query: str
    ) -> Document:
        """Creates an object; the warnings of the answer are appended to `warnings`."""
        return await self._call("POST", path, query, document, warnings=warnings)

    async def replace(self, path: str, document: Mapping[str, Any]) -> Document:
        return await self._call("PUT", path, {}, document)

    async def patch(self, path: str, patch: Any, content_type: str = MERGE_PATCH) -> Document:
        return await self._call("PATCH", path, {}, patch, content_type)

    async def delete(self, path: str, options: Mapping[str, Any] | None = None) -> Document:
        return await self._call("DELETE", path, {}, options or {})

    async def watch(
        self, path: str, resource_version: str, seconds: int, **query: str
    ) -> AsyncGenerator[Document, None]:
        """The changes after this version, until the server ends the stream, at the latest after `seconds`.

        Raises ApiError if nothing arrives for long: a proxy or NAT in between may have dropped the connection.
        """
        query |= {"watch": "1", "resourceVersion": resource_version, "timeoutSeconds": str(seconds)}
        query |= {"allowWatchBookmarks": "true"}
        timeout = aiohttp.ClientTimeout(total=seconds + SECONDS, sock_connect=CONNECT_SECONDS, sock_read=self._silence)
        response = await self._send("GET", path, query, None, None, timeout)
        try:
            async for line in response.content:
                if line.strip():
                    yield nesting.read(line)
        except TimeoutError as error:
            raise ApiError(0, SILENT, f"the watch of {path} has been silent for {self._silence:g} s") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise ApiError(0, "", f"the watch of {path} broke: {_message(error)}") from error
        finally:
            response.close()

    # -- one call ---------------------------------------------------------------------------------------------------
    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any = None,
        content_type: str | None = None,
        warnings: list[str] | None = None,
        sizes: list[int] | None = None,
    ) -> Document:
        pause = PAUSE
        for _ in range(TRIES - 1):
            try:
                return await self._once(method, path, query, body, content_type, warnings, sizes)
            except ApiError as error:
                if not error.may_pass:
                    raise
                requested = min(error.retry_after, self._longest_pause)
            await asyncio.sleep(max(pause, requested))
            pause *= 2
        return await self._once(method, path, query, body, content_type, warnings, sizes)

    async def _once(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        content_type: str | None,
        warnings: list[str] | None,
        sizes: list[int] | None,
    ) -> Document:
        timeout = aiohttp.ClientTimeout(total=self._seconds, sock_connect=CONNECT_SECONDS)
        makes_a_pod = method == "POST" and path.endswith("/pods")
        async with (
            self._turn,
            self._creations if makes_a_pod else nullcontext(),
            await self._send(method, path, query, body, content_type, timeout) as response,
        ):
            try:
                raw = await response.read()
                found = nesting.read(raw)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise ApiError(0, "", f"{method} {path}: the answer broke off: {_message(error)}") from error
        if sizes is not None:
            sizes.append(len(raw))
        if not isinstance(found, dict):
            raise ApiError(0, "", f"{method} {path}: the answer is not a JSON object")
        if warnings is not None:
            warnings += _warnings(response.headers.getall("Warning", []))
        return found

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        content_type: str | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        if not _PATH.fullmatch(path):
            raise ApiError(400, "BadRequest", f"{path[:200]!r} is not a path of the API: the request was not sent")
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if content_type else {})
        if method != "GET" and not self._may_write():
            raise ApiError(0, "Fenced", f"{method} {path}: not sent: the Lease of this master has run out")
        kind = request_of(method, path, query)
        request = await self._client.param_serialize(
            method, path, query_params=list(query.items()), header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        try:
            wrapped = await self._client.rest_client.request(
                request[0], request[1], headers=request[2], body=request[3], _request_timeout=timeout
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.requests[kind, 0] += 1
            raise ApiError(0, "", f"{method} {path}: the API server was not reached: {_message(error)}") from error
        response: aiohttp.ClientResponse = wrapped.response
        self.requests[kind, response.status] += 1
        if response.status >= 400:
            raise await _refusal(method, path, response)
        return response


async def _refusal(method: str, path: str, response: aiohttp.ClientResponse) -> ApiError:
    async with response:
        try:
            status = nesting.read(await response.read())
        except (aiohttp.ClientError, TimeoutError, ValueError):
            status = {}
    known = status if isinstance(status, dict) else {}
    requested = response.headers.get("Retry-After", "") if response.status in (429, 503) else ""
    retry_after = float(requested) if requested.isascii() and requested.isdecimal() else 0.0
    message = f"{method} {path}: {known.get('message') or ''}"
    return ApiError(response.status, known.get("reason") or "", message, retry_after)


def _warnings(headers: Sequence[str]) -> list[str]:
    return [re.sub(r"\\(.)", r"\1", text) for header in headers for text in _WARNING.findall(header)]


def _message(error: BaseException) -> str:
    return str(error) or type(error).__name__
