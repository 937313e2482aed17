"""`outrider-sidecar`, the first process of the sidecar's container, around a `python` that the test has written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from sidecar.shell.service import OVER

ENTRY = Path(__file__).resolve().parents[2] / "sidecar" / "outrider-sidecar"
DEADLINE = 20.0


def start(folder: Path, python: str) -> subprocess.Popen[str]:
    """`python` is a shell script; it finds how often it was started before in $n."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "python"
    count = f'n=$(cat {folder}/n 2>/dev/null || echo 0); echo $((n + 1)) > {folder}/n\necho "started $n: $*"\n'
    program.write_text("#!/bin/sh\n" + count + python)
    program.chmod(0o755)
    return subprocess.Popen(
        [str(ENTRY)],
        env={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "OUTRIDER_DIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_one_that_is_killed_is_started_again_and_one_that_ends_is_not(tmp_path: Path) -> None:
    out, err = start(tmp_path, "[ $n -lt 2 ] && kill -KILL $$\nexit 0").communicate(timeout=DEADLINE)
    assert out.splitlines() == [f"started {n}: -P -E -m sidecar" for n in range(3)]
    assert err.count("the sidecar ended with 137 and is started again") == 2


def test_one_that_meant_to_end_with_the_trainers_code_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / OVER).touch()  # of an earlier life: it says nothing
    python = f"[ $n -lt 1 ] && exit 3\ntouch {tmp_path / OVER}\nexit 3"
    process = start(tmp_path, python)
    out, _ = process.communicate(timeout=DEADLINE)
    assert (process.returncode, len(out.splitlines())) == (3, 2)


def test_a_wrong_setting_is_not_tried_again(tmp_path: Path) -> None:
    process = start(tmp_path, "exit 2")
    out, _ = process.communicate(timeout=DEADLINE)
    assert (process.returncode, len(out.splitlines())) == (2, 1)


def test_one_that_keeps_dying_young_is_given_to_the_kubelet(tmp_path: Path) -> None:
    process = start(tmp_path, "exit 70")
    out, _ = process.communicate(timeout=DEADLINE)
    assert (process.returncode, len(out.splitlines())) == (70, 5)


PATIENT = """import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("ready", flush=True)
signal.sigwait([signal.SIGTERM])
print("told", flush=True)
open(sys.argv[1]).read()
print("done", flush=True)
"""


def test_sigterm_reaches_the_sidecar_which_ends_when_it_has_done_its_work(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "may-end")
    (tmp_path / "patient.py").write_text(PATIENT)
    process = start(tmp_path, f"exec {sys.executable} {tmp_path / 'patient.py'} {tmp_path / 'may-end'}")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)][1] == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "told\n"
    (tmp_path / "may-end").write_text("now")
    rest, _ = process.communicate(timeout=DEADLINE)
    assert (process.returncode, rest) == (0, "done\n")
