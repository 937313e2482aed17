"""A real node without torch: the trainer is any command, the master and the sidecars are the real ones."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from outrider.master.core.spec import JobSpec
from outrider.master.local.process_specs import NodeConfig
from outrider.runtime.processes import marked
from outrider.wire.ids import JobName, MemberId

DEADLINE = 240.0
LAUNCHER = '#!/bin/sh\nexec "$@"\n'


def config(
    folder: Path, *command: str, members: int = 1, output: list[tuple[str, str, bytes]] | None = None
) -> NodeConfig:
    launcher = folder / "launcher"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)

    def keep(member: MemberId, stream: str, line: bytes) -> None:
        if output is not None:
            output.append((member, stream, line))

    return NodeConfig(
        folder=folder / "job",
        spec=JobSpec(JobName("small"), members, members, members),
        command=command,
        environment=dict(os.environ),
        working_folder=folder,
        hooks=folder,
        launcher=launcher,
        nproc=1,
        on_output=keep,
        python=sys.executable,
    )


async def until(claim: Callable[[], bool]) -> None:
    """Waits until it holds, with a generous deadline."""
    async with asyncio.timeout(DEADLINE):
        while not claim():
            await asyncio.sleep(0.02)


class NodeClient:
    """A second client of node.sock, beside the master."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, folder: Path) -> NodeClient:
        return cls(*await asyncio.open_unix_connection(folder / "node.sock"))

    async def say(self, **line: object) -> None:
        self._writer.write(json.dumps(line).encode() + b"\n")
        await self._writer.drain()

    async def is_closed_after(self, data: bytes) -> bool:
        """Sends these bytes; whether the node then closes the connection."""
        try:
            self._writer.write(data)
            await self._writer.drain()
            async with asyncio.timeout(DEADLINE):
                await self._reader.read()
        except ConnectionError:
            pass
        finally:
            self.close()
        return True

    async def hear(self, claim: Callable[[dict[str, dict[str, object]]], bool]) -> dict[str, dict[str, object]]:
        """The next line for which the claim holds."""
        async with asyncio.timeout(DEADLINE):
            while True:
                raw = await self._reader.readline()
                if not raw:
                    raise EOFError("the node closed the connection")
                line = json.loads(raw)
                if claim(line):
                    return line

    def close(self) -> None:
        self._writer.close()


def of_job(uid: str) -> list[int]:
    return marked("OUTRIDER_JOB_UID", uid)


def commands(pids: list[int]) -> dict[int, str]:
    found = {}
    for pid in pids:
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
    return found
