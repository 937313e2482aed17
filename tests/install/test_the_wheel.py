"""A wheel, installed into an environment of its own, brings the hooks whole: the folder for PYTHONPATH, sitecustomize
in it, and a launcher that can be executed. With what its metadata names, and nothing else, each command works that
needs no cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from outrider.cli.main import COMMANDS
from tests.integration.hooks.agent import Trainer
from tests.tiers import witnesses

pytestmark = pytest.mark.xdist_group("wheel")  # one is built for all

ROOT = Path(__file__).resolve().parents[2]
CONTAINER = "{name: t, image: i, command: [python, train.py]}"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site-packages of a new environment that holds the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("outrider", "master", "sidecar", "training_hooks"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "manifests" / "base").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "manifests/base/elasticjobs.yaml"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source / name)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "wheels"), str(source)]
    subprocess.run([*PIP, *build], check=True, timeout=120, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, timeout=60)
    (wheel,) = (folder / "wheels").glob("*.whl")
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", str(wheel)], check=True, timeout=120)
    (packages_of_it,) = (folder / "venv" / "lib").glob("python*/site-packages")
    return packages_of_it


@pytest.mark.slow
def test_a_wheel_adds_two_names_to_an_environment(site: Path) -> None:
    """What a wheel names `cli` or `master` would hide a module of everybody's."""
    (record,) = site.glob("outrider-*.dist-info/RECORD")
    paths = [line.partition(",")[0] for line in record.read_text().splitlines()]
    assert {path.split("/")[0] for path in paths} == {"outrider", "training_hooks", record.parent.name, ".."}
    assert [path for path in paths if path.startswith("..")] == ["../../../bin/outrider"]
    assert not (site / "outrider" / "master").is_symlink()


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
@pytest.mark.exhaustive
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


@pytest.fixture(scope="session")
def installed(site: Path) -> Path:
    """`bin` of an environment with the wheel and what it needs, taken from the one that the tests run in."""
    (wheel,) = site.glob("outrider-*.dist-info/METADATA")
    wanted = metadata.PathDistribution(wheel.parent)
    for name in sorted(_closure(wanted)):
        for file in metadata.distribution(name).files or ():
            source = Path(str(file.locate()))
            if ".." in file.parts or file.suffix == ".pyc" or not source.exists():
                continue
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            if not (site / file).exists():
                os.link(source, site / file)
    return site.parents[2] / "bin"


def _closure(of: metadata.Distribution) -> set[str]:
    found: set[str] = set()
    waiting = [of]
    while waiting:
        for each in map(Requirement, waiting.pop().requires or ()):
            if each.name not in found and (each.marker is None or each.marker.evaluate({"extra": ""})):
                found.add(each.name)
                waiting.append(metadata.distribution(each.name))
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short name: sockets lie in it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def outrider(installed: Path, *arguments: str, folder: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment |= {"OUTRIDER_HOME": str(folder / "home")}
    done = subprocess.run(
        [installed / "outrider", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"outrider {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_a_wheel_with_what_it_names_runs_a_job(installed: Path, folder: Path) -> None:
    (folder / "train.py").write_text("import os\nprint('rank', os.environ['RANK'], flush=True)\n")
    (folder / "rules.yaml").write_text("rules:\n  - {logPattern: 'GPU .* fell off', action: replace}\n")
    said = outrider(installed, "run", "--nnodes", "2", "--rules", "rules.yaml", "train.py", folder=folder)
    assert {"[0]: rank 0", "[1]: rank 1"} <= set(said.splitlines())
    assert "train" in outrider(installed, "status", folder=folder)
    assert "JobSucceeded" in outrider(installed, "events", "train", folder=folder)


@pytest.mark.slow
def test_a_wheel_with_what_it_names_reads_the_files_of_users(installed: Path, folder: Path) -> None:
    (folder / "rules.yaml").write_text("rules:\n  - {logPattern: 'GPU .* fell off', action: replace}\n")
    (folder / "log").write_text("GPU 3 fell off the bus\n")
    assert "replace" in outrider(installed, "rules", "-f", "rules.yaml", "--log", "log", folder=folder)
    labels = "{outrider.dev/inject: 'true', outrider.dev/job: j}"
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a, labels: {labels}}}\nspec: {{containers: [{CONTAINER}]}}\n"
    (folder / "pod.yaml").write_text(pod)
    assert "outrider-sidecar" in outrider(installed, "inject", "-f", "pod.yaml", folder=folder)


@pytest.mark.slow
@pytest.mark.parametrize("command", witnesses(COMMANDS, "run", "status"))
def test_each_command_of_a_wheel_can_be_asked_for_help(installed: Path, command: str, folder: Path) -> None:
    assert outrider(installed, command, "--help", folder=folder).startswith(f"Usage: outrider {command}")
