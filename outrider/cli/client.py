"""The way to a job's master: HTTP over the unix socket in the job's folder.

Small and blocking on purpose: `outrider status` should answer at once, and an asynchronous client costs 0.3 s to
import. Who follows events while doing something else (`outrider run`) does so from a thread of its own.
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
"""Seconds for one answer; collecting from all members takes the master 5 at most."""
COMES_WITHIN, ASKED_EVERY = 5.0, 0.05
"""Seconds that a job may be without its master: it has just begun, or its master is being started again."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Master:
    """One job's master, by its socket. Every method is one request on a connection of its own."""

    def __init__(self, folder: Path) -> None:
        self.job = folder.name
        self._socket = folder / "master.sock"

    def status(self) -> dict[str, Any]:
        """The status document (docs/reference/status.md)."""
        return self._json("GET", "/v1/status")

    def collect(self, what: str) -> dict[str, Any]:
        """`stacks` or `collectives` from every member: bodies by member, and who did not answer."""
        return self._json("GET", f"/v1/{what}")

    def post(self, path: str, body: dict[str, Any], seconds: float = TIMEOUT) -> dict[str, Any]:
        """Ask for something to be done; a refusal is an error with the master's own words."""
        return self._json("POST", path, body, seconds)

    def pid(self) -> int:
        """The process that listens on the socket, as the kernel knows it."""
        with self._reached(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(TIMEOUT)
            probe.connect(str(self._socket))
            return peer_of(probe).pid

    def follow(self, after: int = 0, stop: list[socket.socket] | None = None) -> Iterator[dict[str, Any]]:
        """Events beyond number `after`, as they happen, until the master ends.

        The connection is put into `stop`: shutting it down from another thread ends the iteration.
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
            answer = json.loads(text or b"{}")
        except ValueError:
            answer = {"error": text.decode(errors="replace")[:200]}
        if status >= 400:
            raise UserError(f"{self.job}: {answer.get('error', f'the master answered {status}')}")
        if not isinstance(answer, dict):
            raise Unreachable(f"the master of {self.job} answered with something that is no JSON object")
        return answer

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as broken:
            raise Unreachable(
                f"the master of {self.job} does not answer ({broken or type(broken).__name__})"
            ) from broken


def running_master(job: str | None) -> Master:
    """The master of a running job (the only one where none is named), or an error that says what runs. One that is
    being started is waited for, or what a user wants of a job in its first moment would be lost."""
    name = job_dirs.the_job(job)
    master, deadline = Master(job_dirs.job_folder(name)), time.monotonic() + COMES_WITHIN
    while job_dirs.is_running(name):
        try:
            master.pid()
            return master
        except Unreachable:
            if time.monotonic() > deadline:
                raise
        time.sleep(ASKED_EVERY)
    raise UserError(f"{name} is not running")
