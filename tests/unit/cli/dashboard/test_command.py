"""`outrider dashboard` as a user gives it: what it refuses, and its end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.waiting import DEADLINE


def test_a_job_that_is_not_there_and_a_port_that_is_taken_are_named(ended_job: Any, outrider: Any) -> None:
    ended_job("digits")
    assert "job 'nothing' not found" in outrider("dashboard", "nothing").output
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = outrider("dashboard", "digits", "--port", port)
    assert refused.exit_code == 2
    assert f"--port {port}: must be free on 127.0.0.1 (Address already in use)" in refused.output


def test_it_prints_its_address_and_ends_with_a_signal_or_its_lifeline(tmp_path: Path) -> None:
    environment = {**os.environ, "OUTRIDER_HOME": str(tmp_path)}
    for flags, ending in (([], lambda process: process.send_signal(signal.SIGINT)),
                          (["--lifeline"], lambda process: process.stdin.close())):  # fmt: skip
        command = [sys.executable, "-m", "outrider", "dashboard", *flags]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as process:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            assert re.fullmatch(r"Dashboard of this machine: http://127\.0\.0\.1:\d+/\?token=[\w-]{43}\n", line)
            ending(process)
            assert process.wait(DEADLINE) == 0
