"""A real sidecar process between a real ROUTER and a real hook-side socket, both held by the test."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import zmq

from outrider.runtime.curve_keys import new_key_pair
from outrider.runtime.router import Router
from outrider.wire.codec import decode_from_sidecar, encode
from outrider.wire.ids import Generation, JobName, OrderId, RankIndex, Role
from outrider.wire.messages.directions import FromMaster, FromSidecar
from outrider.wire.messages.generation import Start
from outrider.wire.messages.membership import Hello, Welcome
from tests.waiting import DEADLINE

ROOT = Path(__file__).resolve().parents[3]
Message = TypeVar("Message")


class Master:
    """The test's end of the link: keeps what was sent and answers each Hello with Welcome."""

    def __init__(self, welcome: FromMaster | None = None) -> None:
        self.keys = new_key_pair()
        self.said: list[FromSidecar] = []
        self.session = ""
        self.left: list[str] = []
        self._welcome = Welcome(term=1) if welcome is None else welcome
        self._changed = asyncio.Event()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = Router(self._context, self.keys, self._heard, self._gone)
        self.endpoint = self._router.bind("tcp://127.0.0.1:*")

    def send(self, message: FromMaster) -> None:
        self._router.send(self.session, encode(message))

    def send_bytes(self, payload: bytes) -> None:
        self._router.send(self.session, payload)

    async def hears(self, kind: type[Message], claim: Callable[[Message], bool] = lambda _message: True) -> Message:
        """The first message of this kind, among what has come and what comes, for which the claim holds; it and what
        came before it are not given again."""
        async with asyncio.timeout(DEADLINE):
            while True:
                for place, message in enumerate(self.said):
                    if isinstance(message, kind) and claim(message):
                        del self.said[: place + 1]
                        return message
                self._changed.clear()
                await self._changed.wait()

    async def loses_the_link(self) -> None:
        async with asyncio.timeout(DEADLINE):
            while not self.left:
                self._changed.clear()
                await self._changed.wait()

    def close(self) -> None:
        self._router.close()
        self._context.destroy(linger=0)

    def _heard(self, session: str, payload: bytes) -> None:
        message = decode_from_sidecar(payload)
        self.said.append(message)
        if isinstance(message, Hello):
            self.session = session
            self.send(self._welcome)
        self._changed.set()

    def _gone(self, session: str) -> None:
        self.left.append(session)
        self._changed.set()


class Hook:
    """The hooks' side of agent.sock, by hand. Its process is the test's own, so that is the pid it must announce."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, folder: Path) -> Hook:
        async with asyncio.timeout(DEADLINE):
            while True:
                try:
                    return cls(*await asyncio.open_unix_connection(str(folder / "agent.sock"), limit=1 << 22))
                except (FileNotFoundError, ConnectionRefusedError):
                    await asyncio.sleep(0.02)  # the real hooks, too, retry until the socket exists

    def say(self, line: object) -> None:
        self.say_bytes(json.dumps(line).encode() + b"\n")

    def say_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def hears(self, key: str) -> dict[str, object]:
        """The next line that has this key."""
        async with asyncio.timeout(DEADLINE):
            while True:
                raw = await self._reader.readline()
                assert raw, f"the sidecar closed the connection before a line with {key!r}"
                line: dict[str, object] = json.loads(raw)
                if key in line:
                    return line

    async def is_closed_with(self) -> str:
        """Waits for the end of the connection; the refusal that came before it, or an empty text."""
        refusal = ""
        async with asyncio.timeout(DEADLINE):
            try:
                while raw := await self._reader.readline():
                    refusal = str(json.loads(raw).get("refused", refusal))
            except ConnectionResetError:
                pass
        return refusal

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass


OBEDIENT = """
import json, os, socket, sys, time
line = json.dumps({**json.loads(sys.argv[2]), "pid": os.getpid()})
link = socket.socket(socket.AF_UNIX)
while link.connect_ex(sys.argv[1] + "/agent.sock"):
    time.sleep(0.02)
link.sendall(line.encode() + b"\\n")
for said in link.makefile():
    if json.loads(said).get("do") == "finish":
        sys.exit(json.loads(said)["code"])
"""


class Member:
    """One sidecar process and its folder."""

    def __init__(self, folder: Path, master: Master, **settings: str) -> None:
        self.folder = folder
        self.uid = uuid.uuid4().hex
        token = folder / "token"
        token.write_text("secret\n")
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.environment = {
            **inherited,
            "PYTHONPATH": str(ROOT),
            "OUTRIDER_JOB": "job",
            "OUTRIDER_MEMBER": "worker-0",
            "OUTRIDER_ROLE": "worker",
            "OUTRIDER_RANK_INDEX": "0",
            "OUTRIDER_POD_UID": self.uid,
            "OUTRIDER_DIR": str(folder),
            "OUTRIDER_MASTER": master.endpoint,
            "OUTRIDER_MASTER_KEY": master.keys.public,
            "OUTRIDER_TOKEN_FILE": str(token),
            **settings,
        }
        self.process: asyncio.subprocess.Process | None = None
        self._hooks: list[Hook] = []
        self._others: list[asyncio.subprocess.Process] = []

    async def hook(self) -> Hook:
        """A new connection to its agent.sock, closed at the end of the test."""
        self._hooks.append(await Hook.connect(self.folder))
        return self._hooks[-1]

    async def close(self) -> None:
        """Ends what it has besides its sidecar: connections of hooks, and other processes."""
        for hook in self._hooks:
            await hook.close()
        for process in self._others:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def start(self, *pass_fds: int) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", "outrider.sidecar"),
            env=self.environment,
            cwd="/",
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=pass_fds,
        )

    async def obedient_trainer(self) -> None:
        """A process whose hook says that it is a template, and that ends on order."""
        self._others.append(
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", OBEDIENT, str(self.folder), json.dumps(template())
            )
        )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def run(self, *command: str) -> str:
        """Runs a foreign process to its end; what it printed."""
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(DEADLINE):
            output, _ = await process.communicate()
        return output.decode()

    async def spawn_marked(self, *command: str) -> asyncio.subprocess.Process:
        """A process that carries this member's mark."""
        self._others.append(
            await asyncio.create_subprocess_exec(*command, env=self.environment, start_new_session=True)
        )
        return self._others[-1]

    async def ends(self) -> tuple[int, str]:
        """Its exit code and what it logged."""
        assert self.process is not None
        async with asyncio.timeout(DEADLINE):
            _, errors = await self.process.communicate()
        return int(self.process.returncode or 0), errors.decode()

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            await self.process.communicate()


@asynccontextmanager
async def member(welcome: FromMaster | None = None, **settings: str) -> AsyncIterator[tuple[Master, Member]]:
    """A master and a member whose sidecar runs."""
    with tempfile.TemporaryDirectory(prefix="outrider-test-") as folder:
        master = Master(welcome)
        made = Member(Path(folder), master, **settings)
        try:
            await made.start()
            yield master, made
        finally:
            await made.kill()
            await made.close()
            master.close()


def template(**fields: object) -> dict[str, object]:
    """The announcement of a template that is the test's own process."""
    line: dict[str, object] = {
        "outrider": 1,
        "what": "template",
        "pid": os.getpid(),
        "rung": "T0",
        "rung_reason": "all imports are done",
        "nproc": 2,
        "max_restarts": None,
        "can_start": True,
        "running": None,
        "workers": [],
    }
    return {**line, **fields}


def start_order(order: int, generation: Generation, port: int = 12345, nproc: int = 2, high_step: int = 0) -> Start:
    return Start(
        order=OrderId(order),
        generation=generation,
        restart_count=generation.number - 1,
        master_addr="127.0.0.1",
        master_port=port,
        group_rank=0,
        group_world_size=1,
        first_rank=0,
        nproc=nproc,
        world_size=nproc,
        role=Role("worker"),
        role_first_rank=0,
        role_world_size=nproc,
        rank_index=RankIndex(0),
        job=JobName("job"),
        high_step=high_step,
    )
