"""A sidecar's end of agent.sock for the tests: a real unix socket that speaks the lines of docs/contracts.md §3."""

from __future__ import annotations

import json
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.warm import Process, Warm, plain_environment
from training_hooks import HOOKS_PATH

PATIENCE = 300.0
Line = dict[str, Any]


class TestAgent:
    """Listens on `<volume>/agent.sock`; `expect` waits for the next line that fits."""

    __test__ = False

    def __init__(self, volume: Path) -> None:
        volume.mkdir(parents=True, exist_ok=True)
        self.path = volume / "agent.sock"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.connection: socket.socket | None = None
        self.buffer = b""
        self.lines: list[Line] = []
        self.order = 0

    def accept(self, patience: float = PATIENCE) -> Line:
        self.listener.settimeout(patience)
        self.connection, _ = self.listener.accept()
        self.buffer = b""
        self.connection.sendall(b'{"outrider":1}\n')
        return self.expect(lambda line: "what" in line, patience)

    def say(self, **order: Any) -> None:
        assert self.connection is not None
        self.connection.sendall(json.dumps(order).encode() + b"\n")

    def expect(self, fits: Callable[[Line], bool] | str, patience: float = PATIENCE) -> Line:
        """Removes and returns the first line that fits (an event's name or a predicate), received or still to come."""
        wanted = (lambda line: line.get("event") == fits) if isinstance(fits, str) else fits
        until = time.monotonic() + patience
        while True:
            for line in self.lines:
                if wanted(line):
                    self.lines.remove(line)
                    return line
            self._hear(until, fits)

    def _hear(self, until: float, fits: object) -> None:
        assert self.connection is not None
        ready, _, _ = select.select([self.connection], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise AssertionError(f"nothing fitting {fits} came; heard {self.lines}")
        chunk = self.connection.recv(65536)
        if not chunk:
            raise AssertionError(f"the line was closed while waiting for {fits}; heard {self.lines}")
        self.buffer += chunk
        *whole, self.buffer = self.buffer.split(b"\n")
        self.lines += [json.loads(line) for line in whole]

    def hang_up(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def close(self) -> None:
        self.hang_up()
        self.listener.close()


class Trainer:
    """A trainer process with the hooks on its PYTHONPATH, and its agent. `warm`: the command is the script `train.py`,
    started from a Python that has imported torch."""

    def __init__(
        self,
        folder: Path,
        *command: str,
        python: str = sys.executable,
        mark: bool = True,
        warm: Warm | None = None,
        **env: str,
    ) -> None:
        self.folder = folder
        self.volume = Path(tempfile.mkdtemp(prefix="otr-"))
        self.agent = TestAgent(self.volume)
        environment = plain_environment() | {
            "OUTRIDER_DIR": str(self.volume),
            "OUTRIDER_HOOKS": HOOKS_PATH,
            "PYTHONPATH": HOOKS_PATH,
        }
        environment |= {"OUTRIDER_DEBUG": "1", "PYTHONWARNINGS": "ignore"}
        if mark:
            environment["OUTRIDER_TEMPLATE"] = "1"
        environment |= env
        self.output = folder / "output.txt"
        self.process: subprocess.Popen[bytes] | Process
        with self.output.open("ab") as out:
            if warm is not None:
                self.process = warm.start(folder, command, environment, out.fileno())
            else:
                self.process = subprocess.Popen(
                    [python, *command], cwd=folder, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL
                )
        self.number = 0

    def announced(self) -> Line:
        return self.agent.accept()

    def start(
        self, nproc: int = 1, port: int = 0, saves: list[Any] | None = None, prints: list[Any] | None = None, **env: str
    ) -> list[int]:
        """Orders the next generation; returns its pids."""
        self.number += 1
        ranks = [{"local_rank": rank, "env": {"RANK": str(rank), "LOCAL_RANK": str(rank)}} for rank in range(nproc)]
        common = {"WORLD_SIZE": str(nproc), "LOCAL_WORLD_SIZE": str(nproc), "MASTER_ADDR": "127.0.0.1"}
        common |= {"MASTER_PORT": str(port)} | env
        known = {"saves": saves or [], "prints": prints or []}
        self.agent.say(do="start", generation=[1, self.number], ranks=ranks, env=common, **known)
        return list(self.agent.expect("started")["pids"])

    def stop(self, **patience: float) -> Line:
        self.agent.say(do="stop", generation=[1, self.number], **({"grace": 0.2, "handler_grace": 10} | patience))
        return self.agent.expect("stopped")

    def finish(self, code: int = 0) -> int:
        self.agent.say(do="finish", code=code)
        return self.process.wait(PATIENCE)

    def read(self) -> str:
        return self.output.read_text(errors="replace")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.agent.close()
        shutil.rmtree(self.volume, ignore_errors=True)  # a rank that has not ended yet may still write there


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Waits for an outside event without a notification (the end of a foreign process, a file)."""
    until = time.monotonic() + patience
    pause = select.poll()
    while not holds():
        assert time.monotonic() < until, f"did not come: {what}"
        pause.poll(10)
