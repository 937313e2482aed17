"""`outrider-sidecar`, the first process of the sidecar's container, around a `python` that the test has written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from outrider.sidecar.shell.service import OVER
from tests.waiting import DEADLINE

ENTRY = Path(__file__).resolve().parents[3] / "sidecar" / "outrider-sidecar"


def start(folder: Path, python: str, **more: str) -> subprocess.Popen[str]:
    """`python` is a shell script; it finds how often it was started before in $n."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "python"
    count = f'n=$(cat {folder}/n 2>/dev/null || echo 0); echo $((n + 1)) > {folder}/n\necho "started $n: $*"\n'
    program.write_text("#!/bin/sh\n" + count + python)
    program.chmod(0o755)
    return subprocess.Popen(
        [str(ENTRY)],
        env={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "OUTRIDER_DIR": str(folder), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_one_that_is_killed_is_started_again_and_one_that_ends_is_not(tmp_path: Path) -> None:
    out, err = start(tmp_path, "[ $n -lt 2 ] && kill -KILL $$\nexit 0").communicate(timeout=DEADLINE)
    assert out.splitlines() == [f"started {n}: -P -E -m outrider.sidecar" for n in range(3)]
    assert err.count("the sidecar ended with exit code 137; restarting it") == 2


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


LATE = """import signal, sys
open(sys.argv[1], "w").write("0\\n")
print("over", flush=True)
signal.pause()
"""


def test_sigterm_on_its_way_out_does_not_change_how_it_meant_to_end(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    process = start(tmp_path, f"exec {sys.executable} {tmp_path / 'late.py'} {tmp_path / OVER}")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)][1] == "over\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 0


@pytest.mark.parametrize(("kind", "code"), [("native", 0), ("container", 143)])
def test_sigterm_before_it_listens_ends_a_native_one_well(tmp_path: Path, kind: str, code: int) -> None:
    """Its pod has failed in an init container, or is over: its own code would be read as another failure."""
    process = start(tmp_path, "exec sleep 1000", OUTRIDER_SIDECAR=kind)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("started 0")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == code


SWEEP = """import sys
from outrider.sidecar.shell.trainers import Trainers
print(Trainers(sys.argv[1], print).sweep_all(), flush=True)
"""


def test_a_sweep_of_the_member_spares_the_shell_that_waits_for_its_sidecar(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    (tmp_path / "sweep.py").write_text(SWEEP)
    process = start(
        tmp_path,
        f"{sys.executable} {tmp_path / 'sweep.py'} {mark}",
        OUTRIDER_POD_UID=mark,
        PYTHONPATH=str(ENTRY.parents[1]),
    )
    out, _ = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out.splitlines()[1:]) == (0, ["[]"])
