"""`outrider doctor` on this machine, with things that are wrong in earnest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outrider.cli import job_dirs
from tests.unit.cli.conftest import home as home
from tests.waiting import DEADLINE

pytestmark = pytest.mark.slow

RAN = "\nopen('ran', 'w').close()\n"
Found = dict[str, list[tuple[str, str]]]


@pytest.fixture
def doctor(home: Path, tmp_path: Path) -> Callable[..., tuple[int, Found]]:
    """The command as a user gives it, in a folder of its own: its exit code, and level and text by check."""

    def run(*arguments: str, script: str | None = None, **variables: str) -> tuple[int, Found]:
        if script is not None:
            (tmp_path / "train.py").write_text(script + RAN)
        command = [sys.executable, "-P", "-E", "-m", "outrider", "doctor", "--json", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, text=True,
                              timeout=DEADLINE)  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        found: Found = {}
        for each in json.loads(done.stdout)["findings"]:
            assert each["fix"] or each["level"] == "ok"
            found.setdefault(each["check"], []).append((each["level"], each["text"]))
        assert not (tmp_path / "ran").exists(), "the script was run"
        return done.returncode, found

    return run


Doctor = Callable[..., tuple[int, Found]]


def test_a_script_that_forks_has_no_problem(doctor: Doctor) -> None:
    code, found = doctor("--nnodes", "2", "train.py", "--lr", "1", script="import json\n")
    assert code == 0
    (level, text), *_ = found["restarts"]
    assert (level, "a restart forks ranks" in text) == ("ok", True)
    assert found["command"][0][0] == found["script"][0][0] == found["ports"][0][0] == "ok"


def test_a_script_whose_import_fails_is_a_problem(doctor: Doctor) -> None:
    code, found = doctor("train.py", script="import json\nimport nosuch\n")
    assert code == 1
    assert found["script"] == [("problem", "train.py line 2: ModuleNotFoundError: No module named 'nosuch'")]


def test_a_script_that_starts_threads_before_its_imports_is_a_warning(doctor: Doctor) -> None:
    script = "import threading\nthreading.Thread(target=print).start()\nimport torch\n"
    code, found = doctor("train.py", script=script)
    assert code == 0
    assert found["restarts"][0][0] == "warning"
    assert "early imports end at line 2" in found["restarts"][0][1]


def test_a_package_that_starts_threads_at_its_import_is_named(doctor: Doctor, tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "site-packages"
    packages.mkdir(parents=True)
    text = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (packages / "busy.py").write_text(text)
    code, found = doctor("train.py", script="import busy\n", PYTHONPATH=str(packages))
    assert code == 0
    assert found["restarts"][0][0] == "warning"
    assert "each rank imports busy itself at every restart: after its import 1 thread runs" in found["restarts"][0][1]


def test_a_python_without_torch_is_a_problem_of_a_script_that_needs_it(doctor: Doctor, tmp_path: Path) -> None:
    venv.create(tmp_path / "plain", symlinks=True, with_pip=False)
    python = str(tmp_path / "plain" / "bin" / "python")
    code, found = doctor("--python", python, "train.py", script="import torch\n")
    assert code == 1
    assert "has no torch" in found["torch"][0][1]
    assert found["script"] == [("problem", "train.py line 1: ModuleNotFoundError: No module named 'torch'")]
    code, found = doctor(PYTHON_EXEC=python)
    assert (code, found["torch"][0][0]) == (0, "warning")


def test_a_python_that_does_not_run_and_one_that_is_not_there(doctor: Doctor, tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    code, found = doctor(PYTHON_EXEC=str(broken))
    assert (code, found["python"]) == (1, [("problem", f"{broken} does not run")])
    code, found = doctor(PYTHON_EXEC="/nosuch/python")
    assert (code, found["python"][0][0]) == (1, "problem")


def test_a_python_without_hooks_never_runs_the_script(doctor: Doctor, tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    _, found = doctor("train.py", script="import json\n", PYTHON_EXEC=str(python))
    assert found["restarts"][0][0] == "warning"
    assert "does not load Outrider's hooks" in found["restarts"][0][1]


@pytest.mark.parametrize(
    ("command", "level", "words"),
    [
        (("torchrun", "--nproc-per-node", "2", "train.py"), "ok", "a restart forks ranks"),
        (("sh", "-c", "true"), "warning", "names no Python trainer"),
        (("mpirun", "-np", "2", "python", "train.py"), "", ""),
    ],
)
def test_a_command_after_two_dashes(doctor: Doctor, command: tuple[str, ...], level: str, words: str) -> None:
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    code, found = doctor("--", *command, script="import json\n", PATH=beside)
    if not level:
        assert (code, found["command"][0][0]) == (1, "problem")
        return
    assert found["restarts"][0][0] == level
    assert words in found["restarts"][0][1]


def test_a_process_that_an_ended_job_has_left_behind_is_named_and_isolation_is_checked_if_asked_for(
    doctor: Doctor, home: Path
) -> None:
    folder = job_dirs.job_folder("old") / "members" / "worker-0"
    left = {**os.environ, "OUTRIDER_JOB_UID": "1", "OUTRIDER_DIR": str(folder)}
    with subprocess.Popen(["sleep", "1000"], env=left) as process:
        try:
            _, found = doctor("--isolate")
        finally:
            process.kill()
    assert any(f"process {process.pid} (sleep 1000) is of the job old" in text for _, text in found["leftovers"])
    assert "isolation" in found


def test_a_folder_without_rights_or_room_for_sockets(doctor: Doctor, tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    code, found = doctor("--checkpoints", "/proc/nosuch", "train.py", script="", OUTRIDER_HOME=str(deep))
    assert (code, found["job"][0][0], found["checkpoints"][0][0]) == (1, "problem", "problem")
    assert "is too long" in found["job"][0][1]
    assert "isolation" not in found


def test_limits_below_what_the_members_need(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    command = [sys.executable, "-P", "-E", "-m", "outrider", "doctor", "--nnodes", "100", "train.py"]
    line = f"ulimit -n 64; exec {' '.join(command)}"
    done: Any = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 1
    assert "problem limits         ulimit -n is 64, for 100 members 640 are needed" in done.stdout
    assert "→ ulimit -n 65536" in done.stdout
