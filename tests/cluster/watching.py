"""Watches of the API server, so that a wait looks again when something has changed, and not all the time.

A claim is read from the API server itself: what a watch has told may be older than what the test has just done. Only
where a little too old is harmless its own documents are enough (`Watch.documents`).
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator

from kubernetes import client
from urllib3.exceptions import HTTPError

from tests.cluster.reading import Document, path_of, streamed

_KINDS = ("elasticjobs", "pods", "events")
_AGAIN = 1.0
_LASTS = 60
"""Seconds: until a watch that has broken is opened again, and that the API server keeps one open, needed or not."""

_changes = threading.Condition()
_count = 0
_open: dict[str, dict[str, Watch]] = {}


class Watch(threading.Thread):
    """Of one kind in one namespace."""

    def __init__(self, plural: str, namespace: str) -> None:
        super().__init__(daemon=True)
        self.documents: dict[str, Document] = {}
        """By name."""
        self._path, self._over = path_of(plural, namespace), threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(HTTPError, OSError, client.ApiException, json.JSONDecodeError):
                self._follow()
            self._over.wait(_AGAIN)

    def end(self) -> None:
        self._over.set()

    def _follow(self) -> None:
        """From what there is now; until the API server ends it, or it is too old."""
        self.documents = {}
        query = [("watch", "true"), ("timeoutSeconds", str(_LASTS))]
        for change in map(json.loads, _lines(streamed(self._path, query))):
            if self._over.is_set() or change["type"] == "ERROR":
                return
            document = change["object"]
            name = document["metadata"]["name"]
            if change["type"] == "DELETED":
                self.documents.pop(name, None)
            else:
                self.documents[name] = document
            _tell()


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole


def _tell() -> None:
    global _count
    with _changes:
        _count += 1
        _changes.notify_all()


def opened(namespace: str) -> dict[str, Watch]:
    """By kind; opened where they are not yet."""
    if namespace not in _open:
        _open[namespace] = {plural: Watch(plural, namespace) for plural in _KINDS}
        for watch in _open[namespace].values():
            watch.start()
    return _open[namespace]


def close(namespace: str) -> None:
    for watch in _open.pop(namespace, {}).values():
        watch.end()


def changes() -> int:
    """How many there have been."""
    return _count


def wait_for_change(seen: int, seconds: float) -> None:
    """Until there are more than `seen`, or so many seconds for what no watch tells: files and logs."""
    with _changes:
        _changes.wait_for(lambda: _count > seen, seconds)
