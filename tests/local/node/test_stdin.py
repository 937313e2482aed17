"""`outrider run --stdin 0`: a debugger works in one rank, and the others have no standard input."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tests.local.training import DEADLINE, until

pytestmark = pytest.mark.slow
SCRIPT = """
import os, pdb
if os.environ["RANK"] == "0":
    name = input("name? ")
    answer = 41
    pdb.set_trace()
    print("hello", name, answer, flush=True)
else:
    try:
        input()
    except EOFError:
        print("no input here", flush=True)
"""


class Command:
    """`outrider run` with a pipe as its standard input, and what it has shown so far."""

    def __init__(self, folder: Path, home: str, *flags: str) -> None:
        script = folder / "ask.py"
        script.write_text(SCRIPT)
        self.shown = b""
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-E", "-m", "outrider", "run", *flags, str(script)],
            env={**os.environ, "OUTRIDER_HOME": home}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 4096):
            self.shown += data

    def answer(self, prompt: bytes, line: bytes) -> None:
        """Once the prompt is shown, which no end of a line follows."""
        until(lambda: prompt in self.shown, lambda: self.shown.decode())
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, str]:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(DEADLINE)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code, self.shown.decode()


def test_a_debugger_in_rank_0(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="or-") as home:
        command = Command(tmp_path, home, "--nnodes", "2", "--stdin", "0")
        command.answer(b"[0]: name? ", b"bob")
        command.answer(b"(Pdb) ", b"answer += 1")
        until(lambda: command.shown.count(b"(Pdb) ") == 2, lambda: command.shown.decode())
        command.answer(b"(Pdb) ", b"continue")
        code, shown = command.end()
    assert code == 0, shown
    assert "hello bob 42" in shown
    assert "[1]: no input here" in shown


@pytest.mark.exhaustive
def test_a_debugger_that_is_left_ends_the_job_at_once(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="or-") as home:
        command = Command(tmp_path, home, "--nnodes", "1", "--stdin", "0")
        command.answer(b"[0]: name? ", b"bob")
        command.answer(b"(Pdb) ", b"quit")
        code, shown = command.end()
    assert code != 0
    assert "its debugger was quit, or its standard input has ended" in shown
    assert "generation 1.2" not in shown
