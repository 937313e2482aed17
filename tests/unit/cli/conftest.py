"""A job as the command line finds it: a folder, a lock that somebody holds, a real HTTP server on its socket."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from outrider.cli.main import main
from outrider.runtime.http import HttpServer, failure
from tests.waiting import DEADLINE

NOBODY = "4999999"
"""Who has held the lock of a job that has ended: no pid is as great. Locks of other file systems have its inode."""


def document(job: str = "digits", **changes: Any) -> dict[str, Any]:
    """A status document as docs/reference/status.md describes it."""
    member = {
        "id": "worker-0",
        "role": "worker",
        "rank_index": 0,
        "state": "running",
        "mode": "fork",
        "mode_reason": "the script was named",
        "step": 1240,
        "cpu": 0.5,
        "memory_mib": 312.4,
        "gpus": 0,
        "pids": {"sidecar": 11, "trainer": 12, "workers": [13, 14]},
    }
    spare = member | {"id": "worker-1", "rank_index": None, "state": "spare", "pids": {"sidecar": 21, "trainer": 22}}
    fault = {
        "time": "2026-11-21T03:00:00Z",
        "kind": "WorkerExited",
        "member": "worker-0",
        "reason": "rank 1 was killed by SIGKILL",
        "seconds_lost": 0.214,
    }
    return {
        "version": 1,
        "job": job,
        "phase": "running",
        "generation": "1.2",
        "world": 2,
        "step": 1240,
        "restarts": 1,
        "goodput": 0.962,
        "message": "",
        "exit_code": None,
        "modes": {"fork": 1},
        "faults": [fault],
        "members": [member, spare],
    } | changes


def held(folder: Path) -> IO[str]:
    """The lock of a job that runs: this process has it as long as the file is open."""
    lock = (folder / "lock").open("r+")
    lock.write(f"{os.getpid():<{len(NOBODY)}}")
    lock.flush()
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


class RunningJob:
    """What a job's master would answer, and what it was asked."""

    def __init__(self, folder: Path, status: dict[str, Any]) -> None:
        self.folder = folder
        self.status = status
        self.events: list[dict[str, Any]] = []
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.refusal = ""
        self.answers: dict[str, Any] = {}
        self.answered = threading.Event()

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/v1/status", self._status)
        application.router.add_get("/v1/events", self._events)
        application.router.add_get("/v1/stacks", self._collected)
        application.router.add_get("/v1/collectives", self._collected)
        application.router.add_post("/v1/{what}", self._post)
        return application

    async def _status(self, request: web.Request) -> web.Response:
        self.answered.set()
        return web.json_response(self.status)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in self.events:
            if event["seq"] > int(request.query["after"]):
                await response.write(json.dumps(event).encode() + b"\n")
        return response

    async def _collected(self, request: web.Request) -> web.Response:
        return web.json_response({"members": self.answers, "missing": ["worker-9"]})

    async def _post(self, request: web.Request) -> web.Response:
        if self.refusal:
            return failure(422, self.refusal)
        self.posted.append((request.match_info["what"], await request.json()))
        return web.json_response({}, status=202)


class Served:
    """Runs a server's event loop on a thread of its own while the test waits for a command."""

    def __init__(self, job: RunningJob) -> None:
        self._loop = asyncio.new_event_loop()
        self._server = HttpServer(job.application())
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._path = job.folder / "master.sock"
        self._wait(self._server.start_on_socket(self._path))

    def close(self) -> None:
        self._serve_all()
        self._wait(self._server.stop())
        self._wait(self._settled())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _settled(self) -> None:
        """What closes as the server stops has closed."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    def _serve_all(self) -> None:
        """Who has connected before this request is served before it. In Python 3.11 a connection that a server accepts
        as it is closed is lost in an assertion of asyncio's, and never closed."""
        with socket.socket(socket.AF_UNIX) as last, contextlib.suppress(FileNotFoundError):  # a test has removed it
            last.connect(str(self._path))
            last.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while last.recv(4096):
                pass

    def _wait(self, doing: Any) -> None:
        asyncio.run_coroutine_threadsafe(doing, self._loop).result(DEADLINE)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short folder, because sockets live in it."""
    folder = Path(tempfile.mkdtemp(prefix="or-"))
    monkeypatch.setenv("OUTRIDER_HOME", str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def ended_job(home: Path) -> Callable[..., Path]:
    """Makes the folder of a job that nobody runs."""

    def make(name: str = "digits", **changes: Any) -> Path:
        folder = home / "jobs" / name
        folder.mkdir(parents=True)
        (folder / "lock").write_text(NOBODY)
        (folder / "status.json").write_text(json.dumps(document(name, **changes)))
        return folder

    return make


@pytest.fixture
def running_job(ended_job: Callable[..., Path]) -> Iterator[Callable[..., RunningJob]]:
    """Makes a job whose lock is held and whose socket is answered."""
    open_ones: list[Any] = []

    def make(name: str = "digits", **changes: Any) -> RunningJob:
        folder = ended_job(name, **changes)
        lock = held(folder)
        job = RunningJob(folder, document(name, **changes))
        open_ones.extend([lock, Served(job)])
        return job

    yield make
    for each in reversed(open_ones):
        each.close()


@pytest.fixture
def outrider() -> Callable[..., Result]:
    """The command line, in this process."""
    return lambda *arguments: CliRunner().invoke(main, [str(each) for each in arguments], prog_name="outrider")
