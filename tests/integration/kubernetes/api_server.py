"""An API server as far as the master needs one: real HTTP, documents in memory, lists, watches, patches, status.

It checks nothing: whatever a test puts there is stored and shown, as by a server whose schema is older than the master.
What it was asked is kept, so that a test may look for what was never to be asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web

from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api
from tests.integration.kubernetes.hostile_documents import as_json
from tests.integration.kubernetes.unwell_server import api_at
from tests.waiting import until

JOBS = "/apis/outrider.dev/v1alpha1"


class Asked(NamedTuple):
    method: str
    path: str
    body: Any
    raw: str = ""
    """The path as it came, with what was quoted in it."""


class ApiServer:
    """`documents` are by path. `refuse` may answer a request itself: a status and a message."""

    def __init__(self) -> None:
        self.documents: dict[str, Document] = {}
        self.asked: list[Asked] = []
        self.refuse: Callable[[Asked], tuple[int, str] | None] = lambda _asked: None
        self.stall: Callable[[web.Request], bool] = lambda _request: False
        """Which requests are never answered."""
        self.warns: Callable[[Document], list[str]] = lambda _document: []
        """Of what, in a document that it is given with `fieldValidation=Warn`."""
        self._version = 1
        self._changes: list[tuple[int, str, str, Document]] = []
        """Version, ADDED and its like, path, document."""
        self._news = asyncio.Event()

    # -- what a test does -------------------------------------------------------------------------------------------
    def put(self, path: str, document: Document) -> None:
        kind = "MODIFIED" if path in self.documents else "ADDED"
        self._version += 1
        metadata = document.get("metadata")
        if isinstance(metadata, dict):
            metadata["resourceVersion"] = str(self._version)
            metadata.setdefault("uid", f"uid-{self._version}")
            metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        self.documents[path] = document
        self._tell(kind, path, document)

    def put_job(self, job: Document) -> str:
        path = f"{JOBS}/namespaces/{job['metadata']['namespace']}/elasticjobs/{job['metadata']['name']}"
        self.put(path, job)
        return path

    def edit(self, path: str, **changes: Any) -> None:
        """Fields of the document; another spec is another generation."""
        document = self.documents[path]
        metadata = {
            **document["metadata"],
            "generation": document["metadata"].get("generation", 1) + ("spec" in changes),
        }
        self.put(path, {**document, "metadata": metadata, **changes})

    def remove(self, path: str) -> None:
        document = self.documents.pop(path)
        self._version += 1
        self._tell("DELETED", path, document)

    def all(self, part: str) -> list[Document]:
        """Those with this in their path."""
        return [document for path, document in self.documents.items() if part in path]

    def _tell(self, kind: str, path: str, document: Document) -> None:
        self._changes.append((self._version, kind, path, document))
        told, self._news = self._news, asyncio.Event()
        told.set()

    async def until(self, claim: Callable[[], Any], what: Callable[[], object] = lambda: "") -> Any:
        """The first true answer."""
        return await until(claim, what)

    # -- what it is asked -------------------------------------------------------------------------------------------
    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.stall(request):
            await asyncio.Event().wait()
        raw = await request.read()
        asked = Asked(
            request.method, request.path, json.loads(raw) if raw else None, request.raw_path.partition("?")[0]
        )
        self.asked.append(asked)
        if (refused := self.refuse(asked)) is not None:
            return _failure(*refused)
        match request.method:
            case "GET" if "watch" in request.query:
                return await self._watch(request)
            case "GET":
                return self._get(request)
            case "POST":
                response = self._post(request.path, asked.body)
                if request.query.get("fieldValidation") == "Warn":
                    for text in self.warns(asked.body):
                        response.headers.add("Warning", f"299 - {json.dumps(text)}")
                return response
            case "DELETE":
                return self._delete(request.path)
            case _:
                return self._write(request.path, asked)

    def _get(self, request: web.Request) -> web.Response:
        if request.path == "/apis/policy":
            return _answer({"versions": [{"version": "v1"}]})
        if (found := self.documents.get(request.path)) is not None:
            return _answer(found)
        if not _is_collection(request.path):
            return _failure(404, f"{request.path} not found")
        items = [
            each for path, each in self.documents.items() if _is_in(path, request.path) and _is_selected(each, request)
        ]
        return _answer({"items": items, "metadata": {"resourceVersion": str(self._version)}})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        told = next((n for n, change in enumerate(self._changes) if change[0] > int(request.query["resourceVersion"])),
                    len(self._changes))  # fmt: skip
        while True:
            news = self._news
            for _version, kind, path, document in self._changes[told:]:
                if _is_in(path, request.path) and _is_selected(document, request):
                    await response.write(as_json({"type": kind, "object": document}) + b"\n")
                told += 1
            if news is self._news:
                await news.wait()

    def _post(self, folder: str, document: Document) -> web.Response:
        if folder.endswith("/tokenreviews"):
            token, uid = document["spec"]["token"].split("@")
            user = {"username": f"system:serviceaccount:{token}:default",
                    "extra": {"authentication.kubernetes.io/pod-uid": [uid]}}  # fmt: skip
            return _answer({"status": {"authenticated": True, "audiences": ["outrider"], "user": user}}, 201)
        path = f"{folder}/{document['metadata']['name']}"
        if path in self.documents:
            return _failure(409, f"{path} already exists")
        self.put(path, document)
        return _answer(self.documents[path], 201)

    def _delete(self, path: str) -> web.Response:
        if path not in self.documents:
            return _failure(404, f"{path} not found")
        self.remove(path)
        return _answer({})

    def _write(self, path: str, asked: Asked) -> web.Response:
        path, is_status = path.removesuffix("/status"), path.endswith("/status")
        old = self.documents.get(path)
        if old is None:
            return _failure(404, f"{path} not found")
        wanted = asked.body.get("metadata") or {}
        for field in ("uid", "resourceVersion"):
            if wanted.get(field) not in (None, old["metadata"][field]):
                return _failure(409, f"the {field} is another one")
        new = merged(old, asked.body) if asked.method == "PATCH" else asked.body
        if is_status:
            new = {**old, "metadata": dict(old["metadata"]), "status": new.get("status")}
        self.put(path, new)
        return _answer(self.documents[path])


def merged(document: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    found = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def _is_collection(path: str) -> bool:
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    return len(parts) in (1, 3) if parts[0] == "namespaces" else len(parts) == 1


def _is_in(path: str, folder: str) -> bool:
    """Of one namespace, or of all."""
    start, _, plural = folder.rpartition("/")
    parts = path.rsplit("/", 2)
    return path.startswith(f"{start}/") and len(parts) == 3 and parts[1] == plural


def _is_selected(document: Document, request: web.Request) -> bool:
    """`key` or `key=value`."""
    name, _, value = request.query.get("labelSelector", "").partition("=")
    labels = (document.get("metadata") or {}).get("labels") if name else None
    return not name or (isinstance(labels, dict) and name in labels and value in ("", labels[name]))


def _answer(document: Any, status: int = 200) -> web.Response:
    return web.Response(body=as_json(document), status=status, content_type="application/json")


def _failure(status: int, message: str) -> web.Response:
    return _answer({"kind": "Status", "code": status, "reason": "", "message": message}, status)


@asynccontextmanager
async def api_server() -> AsyncIterator[tuple[ApiServer, Api]]:
    server = ApiServer()
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = api_at(f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        yield server, api
    finally:
        await api.close()
        await runner.cleanup()
