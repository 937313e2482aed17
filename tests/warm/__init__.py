"""What a test starts in place of `python train.py`, where torch would be imported once more for nothing.

Where it is the start itself that is tested (imports, how the hooks come in, threads, OMP_NUM_THREADS, another Python),
a test starts a Python of its own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training_hooks import PACKAGE

SCRIPT = "train.py"
WHEREVER = f"/proc/self/cwd/{SCRIPT}"
"""CPython makes the path of its script absolute at once, when the folder of the test is not known yet."""
PATIENCE = 900.0
MARKED = "OUTRIDER_CHECKPOINT_PATH"
"""Where it is set, the hooks wrap more before torch is imported."""


class Process:
    """As subprocess.Popen has it. Its parent is the warm Python, which leaves it a zombie until it is asked for here,
    so that nobody else has its pid before."""

    def __init__(self, parent: Interpreter, pid: int) -> None:
        self.parent, self.pid = parent, pid
        self.returncode: int | None = None
        self.fd = os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self.fd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(SCRIPT, timeout or 0)
            os.close(self.fd)
            self.returncode = self.parent.asked({"reap": self.pid})
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Interpreter:
    """A Python that has parked in its start (`sitecustomize`)."""

    def __init__(self, **variables: str) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = plain_environment() | {"PYTHONPATH": str(Path(__file__).parent), "PYTHONWARNINGS": "ignore"}
        environ |= {"WARM_CONTROL": str(theirs.fileno()), "OMP_NUM_THREADS": "1", **variables}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, WHEREVER],
                env=environ,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def asked(self, what: dict[str, Any], files: Sequence[int] = ()) -> int:
        socket.send_fds(self.control, [json.dumps(what).encode()], files)
        answer: int = json.loads(self.control.recv(100))
        return answer

    def close(self) -> None:
        self.control.close()
        self.process.wait()


class Warm:
    """Starts the script `train.py` of a folder in a process that is forked from a Python with torch in it."""

    def __init__(self) -> None:
        self.interpreters: dict[tuple[bool, bool], Interpreter] = {}

    def start(
        self, folder: Path, command: Sequence[str], env: Mapping[str, str], output: int, errors: int | None = None
    ) -> Process:
        assert command[0] == SCRIPT, f"what starts here is {SCRIPT}"
        parent = self._interpreter("OUTRIDER_DIR" in env, MARKED in env)
        wanted = {"cwd": str(folder), "command": list(command), "env": dict(env)}
        with open(os.devnull, "rb") as nothing:
            files = [nothing.fileno(), output, output if errors is None else errors]
            return Process(parent, parent.asked(wanted, files))

    def _interpreter(self, hooked: bool, marked: bool) -> Interpreter:
        """One for each way in which torch is wrapped."""
        if (hooked, marked) not in self.interpreters:
            mark = {MARKED: SCRIPT} if marked else {}
            self.interpreters[hooked, marked] = Interpreter(WARM_HOOKS=PACKAGE if hooked else "", **mark)
        return self.interpreters[hooked, marked]

    def run(self, folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """To its end."""
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            process = self.start(folder, [SCRIPT, *arguments], plain_environment() | env, out.fileno(), err.fileno())
        try:
            code = process.wait(PATIENCE)
        finally:
            process.kill()
        said = [(folder / name).read_text() for name in ("stdout", "stderr")]
        return subprocess.CompletedProcess([SCRIPT, *arguments], code, *said)

    def close(self) -> None:
        for each in self.interpreters.values():
            each.close()


def plain_environment() -> dict[str, str]:
    """What a test's own environment hands on: nothing of Outrider's, nor of pytest's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OUTRIDER", "PYTEST"))}
