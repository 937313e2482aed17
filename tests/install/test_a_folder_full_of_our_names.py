"""The command works where every name that it imports is a module of the user's, in the folder and on PYTHONPATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

OURS = ("outrider", "wire", "runtime", "master", "sidecar", "training_hooks", "cli")
THEIRS = ("click", "rich", "zmq", "msgpack", "aiohttp", "uvloop")
STANDARD = ("json", "asyncio", "socket", "logging", "tempfile", "dataclasses", "subprocess")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder in which each of these names ends whoever imports it."""
    for name in (*OURS, *THEIRS, *STANDARD):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('imported the user\\'s {name}')\n")
    return tmp_path


def outrider(folder: Path, *arguments: str, home: str = "") -> subprocess.CompletedProcess[str]:
    """The installed command, run as a user of that folder would."""
    command = Path(sys.executable).parent / "outrider"
    assert command.exists(), "outrider is not installed in this environment"
    return subprocess.run(
        [str(command), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "OUTRIDER_HOME": home or str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("status",), ("run", "--help")])
def test_a_command_imports_none_of_the_users_modules(hostile: Path, arguments: tuple[str, ...]) -> None:
    result = outrider(hostile, *arguments)
    assert result.returncode == 0, result.stderr
    assert "imported the user's" not in result.stdout + result.stderr


def test_the_users_modules_would_be_imported_otherwise(hostile: Path) -> None:
    """The folder is a trap indeed: a Python that is not started safely falls into it."""
    result = subprocess.run(
        [sys.executable, "-m", "outrider"], cwd=hostile, capture_output=True, text=True, timeout=300
    )
    assert "imported the user's" in result.stdout + result.stderr


@pytest.mark.slow
def test_a_job_runs_there_and_its_script_gets_the_users_modules(hostile: Path) -> None:
    """Our services pass the trap by; the script's own imports are the user's business, PYTHONPATH included."""
    for name in STANDARD:
        (hostile / f"{name}.py").unlink()
    (hostile / "wire.py").write_text("whose = 'mine'\n")
    (hostile / "train.py").write_text("import os, wire\nprint(os.environ['RANK'], wire.whose, flush=True)\n")
    home = tempfile.mkdtemp(prefix="or-")
    try:
        result = outrider(hostile, "run", "--nnodes", "2", "train.py", home=home)
    finally:
        shutil.rmtree(home)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["[0]: 0 mine", "[1]: 1 mine"]
    assert "imported the user's" not in result.stderr
