"""`outrider top` in a real pseudo terminal, with a real job whose processes end while it is shown."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.runtime.processes import is_alive
from tests.local import plain
from tests.local.training import Training, until
from tests.waiting import DEADLINE

pytestmark = pytest.mark.slow

CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
DOWN, ESCAPE = "\x1b[B", "\x1b"


class Terminal:
    """A command in a terminal of its own, and what it shows."""

    def __init__(self, command: list[str], environment: dict[str, str], rows: int = 30, columns: int = 100) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(rows, columns)
        self.written = ""
        environment = {**environment, "TERM": "xterm-256color"}
        environment = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        self.modes = termios.tcgetattr(theirs)
        self.theirs = theirs

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def screen(self) -> str:
        """The last whole page: each one begins at the top of the screen."""
        while select.select((self.ours,), (), (), 0)[0]:
            self.written += os.read(self.ours, 65536).decode(errors="replace")
        pages = self.written.split("\x1b[H")
        return CONTROL.sub("", pages[-1]).replace("\r", "")

    def shows(self, *words: str) -> str:
        """Waits until the page has all these words."""

        def found() -> str | None:
            page = self.screen()
            return page if all(word in page for word in words) else None

        return until(found, lambda: f"{words} in {self.screen()}", DEADLINE)

    def ends(self) -> int:
        def ended() -> bool:
            self.screen()  # a terminal that nobody reads stops its program
            return self.process.poll() is not None

        until(ended, self.screen)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE)
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture(scope="module")
def job() -> Iterator[Training]:
    folder, home = Path(tempfile.mkdtemp(prefix="top-")), Path(tempfile.mkdtemp(prefix="or-"))
    job = Training(folder, home, "--nnodes", "3", job="digits", script=plain.SCRIPT)
    job.training(3)
    yield job
    job.close()
    for each in (folder, home):
        shutil.rmtree(each)


@contextlib.contextmanager
def top(job: Training, *arguments: str, rows: int = 30, columns: int = 100) -> Iterator[Terminal]:
    terminal = Terminal(job.cli("top", *arguments), job.environment, rows, columns)
    try:
        yield terminal
    finally:
        terminal.close()


def test_every_key_does_what_the_help_says(job: Training) -> None:
    with top(job) as terminal:
        page = terminal.shows("digits is running", "worker-0", "worker-1", "worker-2", "3 members by index")
        assert [len(line) <= 100 for line in page.splitlines()]
        terminal.press("o")
        terminal.shows("by step")
        terminal.press("oooo")
        terminal.shows("by index")
        terminal.press(DOWN + "j\r")
        terminal.shows("worker-2", "rank index", "pids", "q back")
        terminal.press("s")
        terminal.shows("rank 2 (worker-2", "train.py")
        assert "rank 0" not in terminal.screen()
        terminal.press(ESCAPE)
        terminal.shows("rank index")
        terminal.press("q")
        terminal.shows("by index")
        terminal.press("s")
        terminal.shows("rank 0 (worker-0")
        terminal.press("q")
        terminal.press("e")
        terminal.shows("events, the newest first", "GenerationStarted")
        terminal.press("?")
        terminal.shows("order the members by")
        terminal.press("qq")
        terminal.shows("by index")
        terminal.press("q")
        assert terminal.ends() == 0
        assert "\x1b[?1049l" in terminal.written, "the screen of before is back"
        assert termios.tcgetattr(terminal.theirs) == terminal.modes


def test_a_fault_appears_while_it_is_shown(job: Training) -> None:
    restart, world = job.now()
    with top(job, "digits") as terminal:
        terminal.shows("digits is running")
        os.kill(world[1][0].pid, signal.SIGKILL)
        terminal.shows("last faults", "WorkerExited")
        job.training(3, after=restart)
        terminal.shows("digits is running")


def test_a_narrow_terminal_keeps_member_and_step_and_the_next_size_is_followed(job: Training) -> None:
    with top(job, rows=12, columns=40) as terminal:
        page = terminal.shows("worker-0", "state", "step")
        assert all(len(line) <= 40 for line in page.splitlines())
        terminal.resize(30, 120)
        os.kill(terminal.process.pid, signal.SIGWINCH)
        until(lambda: any(len(line) > 40 for line in terminal.screen().splitlines()), terminal.screen, DEADLINE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was(job: Training, number: signal.Signals) -> None:
    with top(job) as terminal:
        terminal.shows("digits is running")
        terminal.process.send_signal(number)
        assert terminal.ends() in (143, 1)
        assert "\x1b[?1049l" in terminal.written
        assert termios.tcgetattr(terminal.theirs) == terminal.modes


def test_once_needs_no_terminal_and_the_view_does(job: Training) -> None:
    assert "digits is running" in job.outrider("top", "--once")
    done = subprocess.run(job.cli("top"), env=job.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "must be a terminal" in done.stderr
    assert "outrider top --once" in done.stderr


def test_a_master_that_is_away_is_shown_with_the_age_of_the_data_and_then_the_end(job: Training) -> None:
    """The master is stopped, not killed: a killed one is started again at once."""
    with top(job) as terminal:
        terminal.shows("digits is running")
        master = job.master()
        os.kill(master, signal.SIGSTOP)
        try:
            terminal.shows("the data are", "old")
        finally:
            os.kill(master, signal.SIGCONT)
        until(lambda: "the data are" not in terminal.screen(), terminal.screen)
        (job.folder / "end").touch()
        terminal.shows("digits has succeeded with exit code 0")
        assert is_alive(terminal.process.pid)
        terminal.press("q")
        assert terminal.ends() == 0
