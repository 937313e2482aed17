"""What the release before this one starts by its names, the image starts too (`manifests/old_names.py`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import training_hooks
from manifests import old_names


def started(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """By a Python that has neither the current folder nor any setting of ours."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("OUTRIDER", "PYTHON"))}
    command = [sys.executable, "-P", *arguments]
    return subprocess.run(command, env=given | environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("name", "said"),
    [("master", "OUTRIDER_SPEC is not set"), ("sidecar", "OUTRIDER_"), ("sidecar.ask", "error")],
)
def test_a_module_is_started_by_its_old_name(name: str, said: str, tmp_path: Path) -> None:
    old_names.make_modules(tmp_path)
    done = started("-m", name, PYTHONPATH=str(tmp_path))
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_program_of_faults_is_started_by_its_old_path(tmp_path: Path) -> None:
    hooks = tmp_path / "training_hooks"
    shutil.copytree(training_hooks.PACKAGE, hooks)
    (hooks / "faults.py").write_text(old_names.PROGRAM)
    done = started("-I", "-S", str(hooks / "faults.py"), "list", OUTRIDER_DIR=str(tmp_path))
    assert json.loads(done.stdout) == {"refused": [], "running": []}
