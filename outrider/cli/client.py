"""The client of a job's master: HTTP over the unix socket in the job's folder.

It is small and blocking on purpose: `outrider status` should answer at once, and an asynchronous client costs 0.3 s to
import. `outrider run` follows events from a separate thread.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outrider.cli import job_dirs
from outrider.cli.errors import Unreachable, UserError
from outrider.runtime.unix import peer_of

TIMEOUT = 10.0
"""Seconds to wait for one response; the master needs at most 5 to collect from all members."""
COMES_WITHIN, RETRY_EVERY = 5.0, 0.05
"""Seconds to wait for a job's master, which may just be starting or restarting, and seconds between two tries."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Master:
    """The master of one job. Every method makes one request on a new connection."""

    def __init__(self, folder: Path) -> None:
        self.job = folder.name
        self._socket = folder / "master.sock"

    def status(self) -> dict[str, Any]:
        """The status document (docs/reference/status.md)."""
        return self._json("GET", "/v1/status")

    def collect(self, what: str) -> dict[str, Any]:
        """`stacks` or `collectives` of every member: the bodies by member, and the members that did not answer."""
        return self._json("GET", f"/v1/{what}")

    def history(self) -> dict[str, Any]:
        """The part of the history that this master has seen, up to now (docs/contracts.md §15)."""
        return self._json("GET", "/v1/history")

    def recording(self, most: int, seconds: float = 60.0) -> bytes:
        """The recording of the job's journal; at most `most` bytes of it."""
        connection = _UnixConnection(self._socket, seconds)
        with self._reached(), contextlib.closing(connection):
            connection.request("GET", "/v1/recording")
            response = connection.getresponse()
            text = response.read(most)
        if response.status >= 400:
            self._parsed(response.status, text)
        return text

    def post(self, path: str, body: dict[str, Any], seconds: float = TIMEOUT) -> dict[str, Any]:
        """Request an action; a refusal raises UserError with the master's message."""
        return self._json("POST", path, body, seconds)

    def pid(self) -> int:
        """The process that listens on the socket, according to the kernel."""
        with self._reached(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(TIMEOUT)
            probe.connect(str(self._socket))
            return peer_of(probe).pid

    def follow(self, after: int = 0, stop: list[socket.socket] | None = None) -> Iterator[dict[str, Any]]:
        """Events after number `after`, as they happen, until the master ends.

        The socket is appended to `stop`: another thread ends the iteration by shutting it down.
        """
        connection = _UnixConnection(self._socket, None)
        with self._reached(), contextlib.closing(connection):
            connection.request("GET", f"/v1/events?follow=1&after={after}")
            if stop is not None and connection.sock is not None:
                stop.append(connection.sock)
            response = connection.getresponse()
            with response:
                yield from (json.loads(line) for line in response if line.strip())

    def _json(
        self, method: str, path: str, body: dict[str, Any] | None = None, seconds: float = TIMEOUT
    ) -> dict[str, Any]:
        connection = _UnixConnection(self._socket, seconds)
        with self._reached(), contextlib.closing(connection):
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": "application/json"} if payload else {})
            response = connection.getresponse()
            text = response.read()
        return self._parsed(response.status, text)

    def _parsed(self, status: int, text: bytes) -> dict[str, Any]:
        try:
            body = json.loads(text or b"{}")
        except ValueError:
            body = {"error": text.decode(errors="replace")[:200]}
        if status >= 400:
            raise UserError(f"{self.job}: {body.get('error', f'the master responded with HTTP {status}')}")
        if not isinstance(body, dict):
            raise Unreachable(f"the response of the master of {self.job} is not a JSON object")
        return body

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as broken:
            raise Unreachable(
                f"the master of {self.job} does not answer ({broken or type(broken).__name__})"
            ) from broken


def running_master(job: str | None) -> Master:
    """The master of a running job (of the only one if `job` is None), or an error that names the running jobs. A master
    that is starting is waited for, so that a request right after the start of a job is not lost."""
    name = job_dirs.the_job(job)
    master, deadline = Master(job_dirs.job_folder(name)), time.monotonic() + COMES_WITHIN
    while job_dirs.is_running(name):
        try:
            master.pid()
            return master
        except Unreachable:
            if time.monotonic() > deadline:
                raise
        time.sleep(RETRY_EVERY)
    raise UserError(f"{name} is not running")
