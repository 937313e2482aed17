"""The resources used by processes: two readings differ if a process works, and are equal if it waits."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.hooks.agent import wait_until
from training_hooks.telemetry import activity
from training_hooks.telemetry.diagnostics import _process

DEADLINE = 300.0
READY = "print('ready', flush=True)\n"


@contextmanager
def process(code: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", READY + code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as one:
        try:
            assert one.stdout is not None
            one.stdout.readline()
            yield one
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)  # with what it has started


def used(pid: int, store: int | None = None) -> dict[str, float]:
    return dict(activity.used([pid], {pid: store})[pid])


def changes(pid: int, word: str) -> bool:
    """Within a minute."""
    before, until = used(pid)[word], time.monotonic() + DEADLINE
    while time.monotonic() < until:
        if used(pid)[word] != before:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("cpu", "while True: pass"),
        ("io", "while True: open('/proc/self/stat').read(); __import__('time').sleep(0.01)"),
        ("tree", "import subprocess, time\nwhile True: subprocess.Popen(['sleep', '0.1']).wait()"),
        ("cpu", "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while True: pass'])"),
    ],
)
def test_a_working_process_uses_resources(word: str, code: str) -> None:
    with process(code) as one:
        assert changes(one.pid, word)


def test_a_program_that_it_has_run_counts_as_work_however_short() -> None:
    code = """
import os, signal, time
def run(*_):
    os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)
signal.signal(signal.SIGUSR1, run)
print('armed', flush=True)
while True:
    time.sleep(1000)
"""
    with process(code) as one:
        assert one.stdout is not None
        one.stdout.readline()
        before, until = used(one.pid)["io"], time.monotonic() + DEADLINE
        one.send_signal(signal.SIGUSR1)
        while used(one.pid)["io"] == before and time.monotonic() < until:
            time.sleep(0.05)
        assert used(one.pid)["io"] != before


def test_a_waiting_process_uses_nothing() -> None:
    with process("import time; time.sleep(1000)") as one:
        wait_until(lambda: activity._all_stats()[one.pid][0] == "S", "its wait")
        assert used(one.pid) == used(one.pid)


def test_bytes_over_tcp_are_work_but_those_to_the_store_are_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket, sys\none = socket.create_connection(('127.0.0.1', {port}))\nwhile one.recv(100): pass"
        with process(code) as one:
            connection, _ = server.accept()
            before, without = used(one.pid), used(one.pid, port)
            connection.sendall(bytes(1000))
            until = time.monotonic() + DEADLINE
            while used(one.pid)["net"] < before["net"] + 1000 and time.monotonic() < until:
                time.sleep(0.05)
            assert used(one.pid)["net"] == before["net"] + 1000
            assert used(one.pid, port)["net"] == without["net"]
            connection.close()


def test_an_ended_process_is_not_listed() -> None:
    with process("") as one:
        one.wait()
        assert activity.used([one.pid], {}) == {}


def test_a_process_is_known_to_be_stopped() -> None:
    with process("import time; time.sleep(1000)") as one:
        assert _process(one.pid) == ""
        one.send_signal(signal.SIGSTOP)
        until = time.monotonic() + DEADLINE
        while _process(one.pid) != "stopped" and time.monotonic() < until:
            time.sleep(0.01)
        assert _process(one.pid) == "stopped"
