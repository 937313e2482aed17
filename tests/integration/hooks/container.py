"""A trainer container as its sidecar sees it: a real agent.sock, and `outrider-launch` with a real command.

Every wait has a deadline, and every started process is ended.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
HOOKS = ROOT / "training_hooks" / "path"
LAUNCH = ROOT / "training_hooks" / "outrider-launch"
DEADLINE = 300.0
Line = dict[str, Any]


class Container:
    """`lines` are all messages of template or launcher, in order, with the connection's number as `from`."""

    def __init__(self, folder: Path, python: str | None = None) -> None:
        self.folder = folder
        self.volume = folder / "volume"
        self.volume.mkdir()
        self.lines: list[Line] = []
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connections: dict[int, tuple[socket.socket, bytearray]] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.bin = Path(python or sys.executable).parent

    def listen(self) -> None:
        here = os.open(self.volume, os.O_PATH)
        self.listener.bind(f"/proc/self/fd/{here}/agent.sock")
        os.close(here)
        self.listener.listen()
        self.selector.register(self.listener, selectors.EVENT_READ)

    def run(self, *command: str, stdin: int = subprocess.DEVNULL, cgroup: Path | None = None, **variables: str) -> None:
        environ = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        environ["PATH"] = f"{self.bin}:{os.environ['PATH']}"
        environ |= {"OUTRIDER_DIR": str(self.volume), "OUTRIDER_HOOKS": str(HOOKS), **variables}
        enter = ["/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(cgroup)] if cgroup else []
        with (self.folder / "stdout").open("wb") as out, (self.folder / "stderr").open("wb") as err:
            self.process = subprocess.Popen(
                [*enter, "/bin/sh", str(LAUNCH), *command],
                env=environ,
                cwd=self.folder,
                stdin=stdin,
                stdout=out,
                stderr=err,
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stdout(self) -> str:
        return (self.folder / "stdout").read_text(errors="replace")

    def stderr(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    def until(self, found: Callable[[], Any]) -> Any:
        """The first true value; messages are received meanwhile."""
        limit = time.monotonic() + DEADLINE
        while not (value := found()):
            assert time.monotonic() < limit, f"nothing came\n{self.lines}\n{self.stdout()}\n{self.stderr()}"
            self._hear(0.02)
        return value

    def said(self, **wanted: Any) -> Line:
        """The first line with these fields that was not returned before."""

        def look() -> Line | None:
            for line in self.lines:
                if "seen" not in line and all(line.get(name) == value for name, value in wanted.items()):
                    line["seen"] = True
                    return line
            return None

        line: Line = self.until(look)
        return line

    def _hear(self, seconds: float) -> None:
        for key, _ in self.selector.select(seconds):
            if key.fileobj is self.listener:
                connection, _ = self.listener.accept()
                self.connections[connection.fileno()] = (connection, bytearray())
                self.selector.register(connection, selectors.EVENT_READ)
                connection.sendall(b'{"outrider": 1}\n')
            else:
                self._read(key.fd)

    def _read(self, number: int) -> None:
        connection, buffer = self.connections[number]
        try:
            data = connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(connection)
            connection.close()
            return
        buffer += data
        while b"\n" in buffer:
            line, _, rest = bytes(buffer).partition(b"\n")
            buffer[:] = rest
            self.lines.append({**json.loads(line), "from": number})

    def order(self, to: Line, **order: Any) -> None:
        """Answers the connection that sent the line `to`."""
        self.connections[to["from"]][0].sendall(json.dumps(order).encode() + b"\n")

    def start(self, to: Line, number: int, nproc: int = 1, prints: Sequence[Any] = (), **more: str) -> Line:
        ranks = [{"local_rank": i, "env": {"RANK": str(i), "LOCAL_RANK": str(i)}} for i in range(nproc)]
        common = {"WORLD_SIZE": str(nproc), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400", "GROUP_RANK": "0"}
        common |= {"GROUP_WORLD_SIZE": "1", **more}
        self.order(to, do="start", generation=[1, number], ranks=ranks, env=common, saves=[], prints=list(prints))
        return self.said(event="started", generation=[1, number])

    def stop(self, to: Line, number: int, **graces: float) -> Line:
        self.order(
            to, do="stop", generation=[1, number], **{"grace": 0.2, "handler_grace": 10, "save_grace": 60} | graces
        )
        return self.said(event="stopped", generation=[1, number])

    def ended(self) -> int:
        process = self.process
        assert process is not None
        self.until(lambda: process.poll() is not None)
        return process.returncode

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            for connection, _ in self.connections.values():
                connection.close()
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for connection, _ in self.connections.values():
            connection.close()
        self.listener.close()
        self.selector.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
