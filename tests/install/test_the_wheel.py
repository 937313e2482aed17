"""A wheel, installed into an environment of its own, brings the hooks whole: the folder for PYTHONPATH, sitecustomize
in it, and a launcher that can be executed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.hooks.agent import Trainer

ROOT = Path(__file__).resolve().parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def packages() -> list[str]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    return [name.rstrip("*") for name in found]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site-packages of a new environment that holds the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in packages():
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "wheels"), str(source)]
    subprocess.run([*PIP, *build], check=True, timeout=120, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, timeout=60)
    (wheel,) = (folder / "wheels").glob("*.whl")
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", str(wheel)], check=True, timeout=120)
    (packages_of_it,) = (folder / "venv" / "lib").glob("python*/site-packages")
    return packages_of_it


@pytest.mark.slow
def test_the_hooks_of_a_wheel_make_a_template_of_any_python(site: Path, tmp_path: Path) -> None:
    hooks, launch = site / "training_hooks" / "path", site / "training_hooks" / "outrider-launch"
    assert sorted(each.name for each in hooks.iterdir() if each.name != "__pycache__") == ["sitecustomize.py"]
    assert os.access(launch, os.X_OK)
    (tmp_path / "train.py").write_text("import json, os\nprint('RANK', os.environ['RANK'], flush=True)\n")
    trainer = Trainer(
        tmp_path, sys.executable, "train.py", python=str(launch), mark=False, OUTRIDER_HOOKS=str(hooks), PYTHONPATH=""
    )
    try:
        assert trainer.announced()["rung"] == "T0"
        trainer.start()
        assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
        assert "RANK 0" in trainer.read()
        assert trainer.finish() == 0
    finally:
        trainer.close()


@pytest.mark.slow
def test_a_script_imports_the_sampler_from_a_wheel_without_outrider_running(site: Path, tmp_path: Path) -> None:
    text = """
import sys
import training_hooks
assert "torch" not in sys.modules
from training_hooks import ElasticSampler
print(training_hooks.__file__, list(ElasticSampler(range(5), 2, 1, shuffle=False)))
"""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    run = [sys.executable, "-c", text]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == f"{site}/training_hooks/__init__.py [1, 3, 0]\n"
